// The names in a folder of checkpoints: a folder for each step, and in it a file of each rank,
// with the id of the save that has written it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::parallel {

/// "PATH/step-0000000050".
std::string step_folder(const std::string& path, std::uint64_t step);
/// The step of a folder with such a name, of any number of digits.
std::optional<std::uint64_t> step_of(const std::filesystem::directory_entry& entry);

/// "rank-00003-of-00008.89abcdef01234567.safetensors"
struct FileName {
  int rank = 0, ranks = 0;
  std::uint64_t id = 0;  // not 0
};
std::string text_of(const FileName& name);
std::optional<FileName> file_name_of(std::string_view text);

/// The files of one save of a step: of `ranks` ranks, with this id.
struct SavedFiles {
  std::string folder;
  int ranks = 0;
  std::uint64_t id = 0;

  std::string of(int rank) const { return folder + "/" + text_of(FileName{rank, ranks, id}); }
  /// Removes those that there are, also those that ranks still write, and the folder if it is empty
  /// then.
  void remove() const noexcept;
};

/// By which a file is known again that nobody has changed: its size, and when it was written last.
/// All files that are gone have the same.
using FileStamp = std::pair<std::uintmax_t, std::filesystem::file_time_type>;
FileStamp stamp_of(const std::string& path);

}  // namespace tutti::parallel
