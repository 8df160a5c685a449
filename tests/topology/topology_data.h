// Where real topology files and logs lie: beside the source tree in ../shared/data, or where
// TOPOLOGY_DATA says. Tests that need them say so in one line and are skipped where they are not.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace tutti::test {

/// "" where there is none.
inline std::string topology_data() {
  namespace fs = std::filesystem;
  std::vector<fs::path> places{fs::path(TUTTI_SOURCE_DIR) / "../shared/data",
                               fs::path(TUTTI_SOURCE_DIR) / "../../shared/data"};
  if (const char* given = std::getenv("TOPOLOGY_DATA")) places.insert(places.begin(), given);
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::is_directory(place / "topology", error)) return fs::weakly_canonical(place).string();
  }
  return "";
}

/// The files of a folder in it, sorted.
inline std::vector<std::string> topology_files(const std::string& folder) {
  std::vector<std::string> files;
  const std::string data = topology_data();
  if (data.empty()) return files;
  for (const auto& entry : std::filesystem::directory_iterator(data + "/topology/" + folder)) {
    files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace tutti::test

#define SKIP_WITHOUT_TOPOLOGY_DATA()                                                            \
  if (tutti::test::topology_data().empty()) {                                                   \
    GTEST_SKIP() << "no topology data: ../shared/data is not there (TOPOLOGY_DATA says where)"; \
  }
