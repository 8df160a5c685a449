// Coverage: whether the parts that are saved make their tensors whole, each element once. Saving
// asks it of the parts of all ranks, keeping and loading ask it of those in files.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "part.h"

namespace tutti::parallel {

/// Elements of a whole tensor, from `begin` to before `end`.
struct ElementRun {
  std::size_t begin = 0, end = 0;
  int by = 0;  // says who has them
};
/// "element 5", "elements 5 to 9".
std::string text_of(const ElementRun& run);

/// Elements that two have (their `by`), or nobody.
struct CoverageFault {
  ElementRun elements;
  std::optional<std::pair<int, int>> both;
};
/// The first place where the runs do not cover `wanted`, each element once; none: they do. `wanted`
/// ascends without overlaps, and has all that is in the runs.
std::optional<CoverageFault> coverage_fault(std::vector<ElementRun> runs,
                                            std::span<const ElementRun> wanted);

/// A part, and the number of the rank that saves it. What `data` points to is not read.
struct SavedPart {
  int rank = 0;
  TensorPart part;
};
/// Throws Error(mismatch), with the tensor and the ranks, if the parts do not make tensors that are
/// whole: ranks have them with different types or shapes, two save an element, or nobody does.
void check_whole(std::span<const SavedPart> parts);

}  // namespace tutti::parallel
