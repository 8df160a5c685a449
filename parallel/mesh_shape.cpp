// The arithmetic of a mesh.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/error.h"
#include "parallel/mesh.h"

namespace tutti::parallel {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

}  // namespace

MeshShape::MeshShape(int ranks, std::vector<MeshDimension> dimensions)
    : ranks_(ranks), dimensions_(std::move(dimensions)), strides_(dimensions_.size(), 1) {
  if (ranks < 1) refuse(fmt::format("a mesh of {} ranks: there has to be one at least", ranks));
  const std::string given = fmt::format("the mesh {} of {} ranks", text(), ranks);
  MeshDimension* open = nullptr;
  std::int64_t product = 1;
  for (MeshDimension& d : dimensions_) {
    if (d.name.empty()) refuse(given + ": a dimension has no name");
    if (std::ranges::count(dimensions_, d.name, &MeshDimension::name) > 1) {
      refuse(fmt::format("{}: two dimensions are called {}", given, d.name));
    }
    if (d.size == -1) {
      if (open != nullptr) refuse(given + ": only one size can be -1");
      open = &d;
      continue;
    }
    if (d.size < 1) refuse(fmt::format("{}: {} has to be 1 at least, or -1", given, d.name));
    product = std::min<std::int64_t>(product * d.size, std::int64_t{1} << 31);
  }
  if (open != nullptr && ranks % product == 0) {
    open->size = static_cast<int>(ranks / product);
    product = ranks;
  }
  if (product != ranks) {
    refuse(
        fmt::format("{}: the sizes have to multiply up to the number of ranks, and their product "
                    "is {}{}",
                    given, product, open != nullptr ? " times what is to be found" : ""));
  }
  for (std::size_t i = dimensions_.size(); i-- > 1;) {
    strides_[i - 1] = strides_[i] * dimensions_[i].size;
  }
}

bool MeshShape::has(std::string_view name) const {
  return std::ranges::find(dimensions_, name, &MeshDimension::name) != dimensions_.end();
}

std::size_t MeshShape::index(std::string_view name) const {
  const auto found = std::ranges::find(dimensions_, name, &MeshDimension::name);
  if (found == dimensions_.end()) {
    refuse(fmt::format("the mesh {} has no dimension {}", text(), name));
  }
  return static_cast<std::size_t>(found - dimensions_.begin());
}

void MeshShape::check_rank(int rank) const {
  if (rank < 0 || rank >= ranks_) {
    refuse(fmt::format("the mesh {} has no rank {}", text(), rank));
  }
}

std::vector<bool> MeshShape::chosen(std::span<const std::string> names) const {
  std::vector<bool> result(dimensions_.size());
  for (const std::string& name : names) {
    const std::size_t i = index(name);
    if (result[i]) refuse(fmt::format("the dimension {} is named twice", name));
    result[i] = true;
  }
  return result;
}

int MeshShape::size(std::span<const std::string> names) const {
  int product = 1;
  const std::vector<bool> is_chosen = chosen(names);
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    if (is_chosen[i]) product *= dimensions_[i].size;
  }
  return product;
}

std::vector<int> MeshShape::coordinates(int rank) const {
  check_rank(rank);
  std::vector<int> result;
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    result.push_back(rank / strides_[i] % dimensions_[i].size);
  }
  return result;
}

int MeshShape::coordinate(int rank, std::string_view name) const {
  check_rank(rank);
  const std::size_t i = index(name);
  return rank / strides_[i] % dimensions_[i].size;
}

int MeshShape::rank(std::span<const int> coordinates) const {
  if (coordinates.size() != dimensions_.size()) {
    refuse(fmt::format("the mesh {} has {} coordinates, not {}", text(), dimensions_.size(),
                       coordinates.size()));
  }
  int result = 0;
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= dimensions_[i].size) {
      refuse(fmt::format("the mesh {} has no {} {}", text(), dimensions_[i].name, coordinates[i]));
    }
    result += coordinates[i] * strides_[i];
  }
  return result;
}

int MeshShape::moved(int rank, std::string_view name, int coordinate) const {
  std::vector<int> at = coordinates(rank);
  at[index(name)] = coordinate;
  return this->rank(at);
}

std::vector<int> MeshShape::group(int rank, std::span<const std::string> names) const {
  check_rank(rank);
  const std::vector<bool> is_chosen = chosen(names);
  std::vector<int> result{rank};
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    if (!is_chosen[i]) continue;
    std::vector<int> wider;
    for (const int r : result) {
      const int first = r - r / strides_[i] % dimensions_[i].size * strides_[i];
      for (int c = 0; c < dimensions_[i].size; ++c) wider.push_back(first + c * strides_[i]);
    }
    result = std::move(wider);
  }
  return result;  // ascending, as outer dimensions have larger strides
}

MeshShape::GroupRank MeshShape::group_rank(int rank, std::span<const std::string> names) const {
  const std::vector<bool> is_chosen = chosen(names);
  const std::vector<int> at = coordinates(rank);
  GroupRank result;
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    int& number = is_chosen[i] ? result.rank : result.group;
    number = number * dimensions_[i].size + at[i];
  }
  return result;
}

std::string MeshShape::text() const {
  std::string result;
  for (const MeshDimension& d : dimensions_) {
    result += fmt::format("{}{} {}", result.empty() ? "" : " x ", d.name, d.size);
  }
  return result.empty() ? "without dimensions" : result;
}

}  // namespace tutti::parallel
