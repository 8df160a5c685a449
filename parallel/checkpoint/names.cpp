#include "parallel/checkpoint/names.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "core/number.h"
#include "parallel/checkpoint/new_file.h"

namespace tutti::parallel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-", kRank = "rank-", kOf = "-of-", kEnd = ".safetensors";

}  // namespace

std::string step_folder(const std::string& path, std::uint64_t step) {
  return fmt::format("{}/{}{:010}", path, kStep, step);
}

std::optional<std::uint64_t> step_of(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  if (!name.starts_with(kStep) || !entry.is_directory(ignored)) return std::nullopt;
  return parse_number<std::uint64_t>(std::string_view(name).substr(kStep.size()));
}

std::string text_of(const FileName& name) {
  return fmt::format("{}{:05}{}{:05}.{:016x}{}", kRank, name.rank, kOf, name.ranks, name.id, kEnd);
}

std::optional<FileName> file_name_of(std::string_view text) {
  const std::size_t of = text.find(kOf), point = text.find('.');
  if (!text.starts_with(kRank) || !text.ends_with(kEnd) || of == text.npos || point < of) {
    return std::nullopt;
  }
  const auto rank = parse_number<int>(text.substr(kRank.size(), of - kRank.size()));
  const auto ranks = parse_number<int>(text.substr(of + kOf.size(), point - of - kOf.size()));
  const std::string_view id = text.substr(point + 1, text.size() - point - 1 - kEnd.size());
  const auto number = parse_number<std::uint64_t>(id, 16);
  if (!rank || !ranks || !number || *rank < 0 || *rank >= *ranks || *number == 0) {
    return std::nullopt;
  }
  const FileName name{*rank, *ranks, *number};
  if (text_of(name) != text) return std::nullopt;
  return name;
}

void SavedFiles::remove() const noexcept {
  try {
    std::error_code ignored;
    for (int r = 0; r < ranks; ++r) {
      const std::string name = of(r);
      // In this order: a rank may be about to give its file the second name.
      fs::remove(NewFile::early_name(name), ignored);
      fs::remove(name, ignored);
    }
    fs::remove(folder, ignored);
  } catch (const std::exception&) {  // NOLINT: no memory for names; an error has been on its way
  }
}

FileStamp stamp_of(const std::string& path) {
  std::error_code error;
  FileStamp stamp;
  stamp.first = fs::file_size(path, error);
  if (!error) stamp.second = fs::last_write_time(path, error);
  return error ? FileStamp() : stamp;
}

}  // namespace tutti::parallel
