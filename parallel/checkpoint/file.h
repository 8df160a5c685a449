// A file of tensors in the format of safetensors, which other programs read. Tutti's own files also
// have checksums, and say which parts of tensors they hold.
//
//     8 bytes              length of the header, little-endian
//     header               JSON: each tensor's type, shape and place; "__metadata__": texts
//     data                 the tensors, one after the other
//
// The last tensor of Tutti's files is "tutti.checksums": XXH3 of the header, and of each tensor
// before it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "header.h"
#include "new_file.h"
#include "part.h"

namespace tutti::parallel {

/// Writes the parts that have elements, in this order, and commits. Throws Error(system), with the
/// file's name; then there is no such file. False: somebody has removed it meanwhile.
[[nodiscard]] bool write_tensors(NewFile& file, std::span<const TensorPart> parts,
                                 const FileNotes& notes);
/// A file for other programs: whole tensors, and no notes but `texts`. Throws as check_writable()
/// and write_tensors() do.
void write_whole_tensors(const std::string& path, std::span<const TensorPart> tensors,
                         const std::map<std::string, std::string>& texts);

/// An open file, mapped.
class TensorFile {
 public:
  /// Throws Error(invalid_argument), with the file and what is wrong: it cannot be read, is torn,
  /// or is none; Error(system) if the process has no more descriptors or memory. Checks the
  /// header's checksum, if there is one.
  explicit TensorFile(const std::string& path);
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::string& path() const { return path_; }
  bool has_notes() const { return has_notes_; }  // Tutti has written it
  const FileNotes& notes() const { return notes_; }
  /// Their `data` lies in the file, and is not to be written.
  const std::vector<TensorPart>& parts() const { return parts_; }
  /// Tensors of types that Tutti does not have: their names, and those of the types. Files of
  /// other programs may have some.
  const std::map<std::string, std::string>& others() const { return others_; }
  /// Throws Error(invalid_argument) if the part's bytes are not what was written. The first time it
  /// reads all of them. Without checksums, nothing.
  void verify(std::size_t part);

 private:
  void map();
  void read();

  const std::string path_;
  std::shared_ptr<const std::byte> bytes_;
  std::size_t size_ = 0;
  bool has_notes_ = false;
  FileNotes notes_;
  std::vector<TensorPart> parts_;
  std::map<std::string, std::string> others_;
  std::vector<std::uint64_t> checksums_;  // of parts, if the file has them
  std::vector<bool> verified_;
};

}  // namespace tutti::parallel
