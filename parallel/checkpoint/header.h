// The header of a file of tensors (file.h), which is JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "part.h"

namespace tutti::parallel {

/// Everything but tensors that a file has.
struct FileNotes {
  std::uint64_t id = 0;  // all files of a checkpoint have the same
  std::uint64_t step = 0;
  int rank = 0, ranks = 1;
  std::map<std::string, std::string> texts;  // the program's own
};

/// Throws Error(invalid_argument) for what write_tensors() refuses: a part that cannot be
/// (TensorPart::check()), two parts of a tensor, a name that is taken, a name or text that is not
/// UTF-8.
void check_writable(std::span<const TensorPart> parts,
                    const std::map<std::string, std::string>& texts);
/// The header of one of Tutti's files: of parts that have elements, in the order of their data, and
/// of the checksums behind them.
std::string header_of(std::span<const TensorPart> parts, const FileNotes& notes);
/// The header of a file for other programs.
std::string whole_header_of(std::span<const TensorPart> tensors,
                            const std::map<std::string, std::string>& texts);

/// What a header says.
struct Header {
  bool has_notes = false;  // it is of one of Tutti's files
  FileNotes notes;
  std::vector<TensorPart> parts;              // their `data` lies in the file's
  std::map<std::string, std::string> others;  // of types that Tutti does not have
  std::span<const std::byte> checksums;  // with notes: 8 bytes for the header, and for each part
};
/// `data`: all of the file behind the header. Throws Error(invalid_argument) with what is wrong.
Header read_header(std::string_view text, std::span<const std::byte> data);

}  // namespace tutti::parallel
