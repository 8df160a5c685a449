#include "parallel/reshard/bound_memory.h"

#include <algorithm>
#include <utility>

namespace tutti::parallel::reshard {
namespace {

// Windows cost time to open, and memory for their signals.
constexpr std::uint64_t kMostRegions = 32;
constexpr std::uintptr_t kPage = 4096;

struct BoundBuffer {
  std::byte* begin;
  std::size_t bytes;
  bool is_target;
  std::size_t number;  // of the buffer: those of `to` behind those of `from`
};

std::vector<BoundBuffer> buffers_of(const Layout& from, const Layout& to, const Memory& own,
                                    int rank) {
  std::vector<BoundBuffer> buffers;
  const auto add = [&](const Layout& layout, auto pointers, std::size_t first) {
    const std::vector<std::uint64_t> bytes = layout.bytes_of(rank);
    for (std::size_t b = 0; b < bytes.size(); ++b) {
      if (bytes[b] == 0) continue;
      auto* const begin = static_cast<std::byte*>(const_cast<void*>(pointers[b]));
      buffers.push_back({begin, bytes[b], first > 0, first + b});
    }
  };
  add(from, own.sources, 0);
  add(to, own.destinations, from.buffers.size());
  std::ranges::sort(buffers, {},
                    [](const BoundBuffer& b) { return std::pair(b.is_target, b.begin); });
  return buffers;
}

std::uint64_t largest(Communicator& comm, std::uint64_t value) {
  comm.all_reduce(&value, &value, 1, DataType::uint64, ReduceKind::max);
  return value;
}

}  // namespace

BoundMemory::BoundMemory(Communicator& comm, const Layout& from, const Layout& to,
                         const Memory& own, std::span<const int> hosts)
    : ranks_(static_cast<std::size_t>(comm.size())) {
  const std::vector<BoundBuffer> buffers = buffers_of(from, to, own, comm.rank());
  from_.assign(ranks_, std::vector<void*>(from.buffers.size()));
  to_.assign(ranks_, std::vector<void*>(to.buffers.size()));
  // Neighbours of one side are taken for one allocation first. That may be wrong; then each is a
  // region.
  for (const std::uintptr_t gap : {kPage, std::uintptr_t{0}}) {
    std::vector<Region> regions;
    bool is_target = false;  // the last region
    std::vector<Place> places(from.buffers.size() + to.buffers.size());
    for (const BoundBuffer& b : buffers) {
      const bool joins = !regions.empty() && b.is_target == is_target &&
                         b.begin < regions.back().begin + regions.back().bytes + gap;
      if (!joins) regions.push_back({b.begin, 0});
      is_target = b.is_target;
      Region& r = regions.back();
      places[b.number] = {regions.size() - 1, static_cast<std::uint64_t>(b.begin - r.begin)};
      r.bytes = std::max(r.bytes, static_cast<std::size_t>(b.begin + b.bytes - r.begin));
    }
    if (!open(comm, regions, hosts) && gap != 0) continue;
    exchange(comm, places);
    return;
  }
}

bool BoundMemory::open(Communicator& comm, std::span<const Region> regions,
                       std::span<const int> hosts) {
  const std::uint64_t count = largest(comm, regions.size());
  windows_.clear();
  can_.clear();
  if (count > kMostRegions) return false;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      const Region region = i < regions.size() ? regions[i] : Region{};
      windows_.push_back(comm.window(region.begin, region.bytes));
    }
  } catch (const Error& e) {  // all ranks get it
    if (e.code() != ErrorCode::invalid_argument) throw;
    windows_.clear();
    return false;
  }
  std::vector<std::uint8_t> own(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r) {
    const int rank = static_cast<int>(r);
    own[r] = std::ranges::all_of(
        windows_, [&](const Window& w) { return w.bytes_of(rank) == 0 || w.map(rank) != nullptr; });
  }
  can_.resize(ranks_ * ranks_);
  comm.all_gather(own.data(), can_.data(), ranks_, DataType::uint8);
  for (std::size_t a = 0; a < ranks_; ++a) {
    for (std::size_t b = 0; b < ranks_; ++b) {
      if (hosts[a] == hosts[b] && can_[a * ranks_ + b] == 0) return false;
    }
  }
  return true;
}

void BoundMemory::exchange(Communicator& comm, std::span<const Place> own) {
  std::vector<Place> all(ranks_ * own.size());
  comm.all_gather(own.data(), all.data(), own.size() * sizeof(Place), DataType::uint8);
  for (std::size_t r = 0; r < ranks_; ++r) {
    const int rank = static_cast<int>(r);
    if (rank != comm.rank() && !reads(comm.rank(), rank)) continue;
    for (std::size_t b = 0; b < own.size(); ++b) {
      const Place& place = all[r * own.size() + b];
      if (place.region >= windows_.size()) continue;
      void* const pointer = windows_[place.region].map(rank) + place.offset;
      (b < from_[r].size() ? from_[r][b] : to_[r][b - from_[r].size()]) = pointer;
    }
  }
}

Memory BoundMemory::of(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return {{from_[r].data(), from_[r].size()}, to_[r]};
}

void BoundMemory::close() {
  for (Window& w : windows_) w.close();
  *this = {};
}

}  // namespace tutti::parallel::reshard
