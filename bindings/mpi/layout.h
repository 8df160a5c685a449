// Where the data of a data type lie in memory, in the order in which they are sent.
//
// A layout is a list of parts. A part repeats either a run of bytes or an inner layout, at a
// constant stride. What can be joined is joined when a layout is made: a vector of contiguous
// blocks is one part, a matrix of vectors one part with one inner layout, and what leaves no gap is
// a single run. So moving data copies whole runs, and position k of the packed bytes is found by
// bisection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bindings/mpi/element.h"
#include "bindings/mpi/interface.h"

namespace tutti::mpi {

class Layout {
 public:
  struct Part {
    MPI_Aint offset = 0;                  // of the first repetition
    MPI_Count count = 1;                  // repetitions
    MPI_Aint stride = 0;                  // from one repetition to the next
    MPI_Count bytes = 0;                  // of data in one repetition
    MPI_Count before = 0;                 // bytes of data in the parts before this one
    Element element = Element::byte;      // of a run
    std::shared_ptr<const Layout> inner;  // null: a repetition is a run of `bytes`
  };

  /// `keeps_elements`: runs of unlike elements are not joined, so that external32 and accumulating
  /// know what they meet.
  explicit Layout(bool keeps_elements = false) : keeps_elements_(keeps_elements) {}

  /// Appends one run of n elements.
  void append_run(Element element, MPI_Aint offset, MPI_Count n);
  /// Appends `count` copies of a layout, the first displaced by `offset`. Throws Failure if the
  /// data exceed 2^63 - 1 bytes.
  void append(const std::shared_ptr<const Layout>& layout, MPI_Aint offset, MPI_Count count,
              MPI_Aint stride);

  /// After the last append: joins repetitions at a constant stride.
  void finish();

  /// Bytes of data.
  MPI_Count bytes() const { return bytes_; }
  const std::vector<Part>& parts() const { return parts_; }
  bool keeps_elements() const { return keeps_elements_; }
  /// Whether the data are one run without gaps, at most; it begins at parts()[0].offset.
  bool single_run() const;

  // `count` copies of the layout, `extent` bytes apart, are count * bytes() packed bytes. The next
  // three go through the packed bytes [position, position + bytes) of these.

  /// Copies them to `out`, or from `in`.
  void pack(const std::byte* base, MPI_Count count, MPI_Aint extent, MPI_Count position,
            MPI_Count bytes, std::byte* out) const;
  void unpack(const std::byte* in, MPI_Count position, MPI_Count bytes, std::byte* base,
              MPI_Count count, MPI_Aint extent) const;

  /// Calls take(element, offset, bytes) for each run, in order. A run at either end may be a part
  /// of one, and of an element.
  using Take = std::function<void(Element element, MPI_Aint offset, MPI_Count bytes)>;
  void for_each_run(MPI_Count count, MPI_Aint extent, MPI_Count position, MPI_Count bytes,
                    const Take& take) const;

 private:
  void add(Part part);
  Part copies(MPI_Count count, MPI_Aint extent) const;

  bool keeps_elements_;
  MPI_Count bytes_ = 0;
  std::vector<Part> parts_;
};

}  // namespace tutti::mpi
