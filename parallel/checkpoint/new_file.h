// A file that has its name when it is whole and on the disk. Until then it has another one.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::parallel {

/// Errors are Error(system), with the file's name; then there is no such file.
class NewFile {
 public:
  explicit NewFile(std::string path);
  /// Removes it, unless commit() has succeeded.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// The name before commit().
  static std::string early_name(const std::string& path) { return path + ".partial"; }
  const std::string& path() const { return path_; }
  void write(const void* data, std::size_t bytes);
  /// Syncs, and gives the file its name; the last call. False: somebody has removed the file since
  /// it was created.
  [[nodiscard]] bool commit();

 private:
  const std::string path_, early_;
  int fd_ = -1;
};

/// Returns when names in the folder are safe ("": the present one).
void sync_folder(const std::string& path);

}  // namespace tutti::parallel
