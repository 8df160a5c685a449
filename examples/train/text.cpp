#include "examples/train/text.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <vector>

#include "core/error.h"

namespace train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& why) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument, why);
}

bool is_source(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".h" || extension == ".cpp" || extension == ".md";
}

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(path); entry != fs::end(entry); ++entry) {
    const std::string name = entry->path().filename().string();
    // What is built or hidden is no text of this folder's.
    if (entry->is_directory() && (name.starts_with("build") || name.starts_with("."))) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && is_source(entry->path())) {
      files.push_back(entry->path());
    }
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

Text::Text(const std::string& path) {
  constexpr std::uintmax_t kMost = 1 << 30;  // each rank has all of it
  if (!fs::exists(path)) refuse(fmt::format("--text {}: there is no such file or folder", path));
  for (const fs::path& file : files_of(path)) {
    // Devices and pipes may have no end.
    if (!fs::is_regular_file(file)) {
      refuse(fmt::format("--text {}: it is neither a file nor a folder", path));
    }
    const std::uintmax_t size = fs::file_size(file), before = bytes_.size();
    if (size > kMost - before) {
      refuse(fmt::format("--text {}: more than {} MiB; name a part of it", path, kMost >> 20));
    }
    std::ifstream in(file, std::ios::binary);
    if (!in) refuse(fmt::format("--text {}: {} cannot be read", path, file.string()));
    bytes_.resize(before + size);
    in.read(bytes_.data() + before, static_cast<std::streamsize>(size));
    bytes_.resize(before + static_cast<std::size_t>(in.gcount()));
  }
  if (bytes_.empty()) {
    refuse(
        fmt::format("there is no text in {}: name a file, or a folder with *.h, *.cpp or *.md "
                    "files",
                    path));
  }
}

std::string Text::describe() const {
  return fmt::format("{} bytes, hash {:x}", bytes_.size(), std::hash<std::string>()(bytes_));
}

Batch Text::batch(std::uint64_t seed, std::uint64_t step, std::int64_t first, std::int64_t count,
                  std::int64_t length) const {
  const auto needed = static_cast<std::size_t>(length) + 1;
  if (bytes_.size() < needed) {
    refuse(fmt::format("the text has {} bytes, but a sequence takes {}", bytes_.size(), needed));
  }
  std::mt19937_64 random(seed * 1'000'003 + step);
  random.discard(static_cast<unsigned long long>(first));
  Batch batch{at::empty({count, length}, at::kLong), at::empty({count, length}, at::kLong)};
  auto* token = batch.tokens.mutable_data_ptr<std::int64_t>();
  auto* next = batch.next.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t at = random() % (bytes_.size() - needed + 1);
    for (std::size_t t = 0; t + 1 < needed; ++t) {
      *token++ = static_cast<unsigned char>(bytes_[at + t]);
      *next++ = static_cast<unsigned char>(bytes_[at + t + 1]);
    }
  }
  return batch;
}

}  // namespace train
