#include "tests/ptx/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tutti::ptx {
namespace {

std::size_t granules_of(std::uint64_t begin, std::size_t bytes) {
  return ((begin + bytes + 7) / 8 - begin / 8) * sizeof(Granule);
}

}  // namespace

Memory::~Memory() {
  for (const auto& [end, r] : regions_) {
    munmap(r.granules, granules_of(reinterpret_cast<std::uint64_t>(r.begin), r.bytes));
  }
}

// --- Regions -------------------------------------------------------------------------------------

void Memory::add(std::byte* begin, std::size_t bytes, bool blank) {
  const auto at = reinterpret_cast<std::uint64_t>(begin);
  void* const shadow = mmap(nullptr, granules_of(at, bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shadow == MAP_FAILED) throw std::bad_alloc();
  Region r;
  r.begin = begin;
  r.bytes = bytes;
  r.granules = static_cast<Granule*>(shadow);
  if (blank) r.written.resize((bytes + 7) / 8);
  regions_[at + bytes] = std::move(r);
  last_ = nullptr;
}

void Memory::remove(std::byte* begin) {
  for (auto r = regions_.begin(); r != regions_.end(); ++r) {
    if (r->second.begin != begin) continue;
    blank(begin);
    munmap(r->second.granules,
           granules_of(reinterpret_cast<std::uint64_t>(begin), r->second.bytes));
    regions_.erase(r);
    last_ = nullptr;
    return;
  }
}

void Memory::blank(std::byte* begin) {
  const auto found = regions_.upper_bound(reinterpret_cast<std::uint64_t>(begin));
  if (found == regions_.end() || found->second.begin != begin) return;
  Region& r = found->second;
  const std::size_t bytes = granules_of(reinterpret_cast<std::uint64_t>(begin), r.bytes);
  if (!r.written.empty()) {
    // A block's shared memory, which is reused: it has no strong words, or few.
    for (std::size_t i = 0; i < bytes / sizeof(Granule); ++i) forget(r.granules[i]);
    std::memset(static_cast<void*>(r.granules), 0, bytes);
    std::fill(r.written.begin(), r.written.end(), std::uint8_t{0});
  }
}

void Memory::fail(const ThreadView& t, const std::string& what) const {
  throw Fault(fmt::format("{}\n  by {}", what, who ? who(t.number) : "a thread") +
              (place ? "\n  at " + place(manner.op) : ""));
}

Memory::Region& Memory::region(const ThreadView& t, std::uint64_t address, std::uint32_t bytes) {
  const auto inside = [&](const Region& r) {
    const auto begin = reinterpret_cast<std::uint64_t>(r.begin);
    return address >= begin && address + bytes <= begin + r.bytes;
  };
  if (address % bytes != 0) {
    fail(t, fmt::format("{} bytes at {:#x}, which is no multiple of their number", bytes, address));
  }
  if (last_ != nullptr && inside(*last_)) return *last_;
  const auto found = regions_.upper_bound(address);
  if (found == regions_.end() || !inside(found->second)) {
    fail(t, fmt::format("{} bytes at {:#x}, which is outside of all allocations", bytes, address));
  }
  last_ = &found->second;
  return *last_;
}

Granule& Memory::granule(std::uint64_t address) {
  return last_->granules[address / 8 - reinterpret_cast<std::uint64_t>(last_->begin) / 8];
}

// --- Races ---------------------------------------------------------------------------------------

void Memory::check(ThreadView& t, std::uint64_t address, std::uint32_t bytes, bool write) {
  const Clock& known = t.known();
  const Moment now = t.now();
  const auto scope = static_cast<std::uint32_t>(manner.scope);
  for (std::uint64_t at = address; at < address + bytes;) {
    Granule& g = granule(at);
    const std::uint64_t low = at % 8;
    const std::uint64_t n = std::min<std::uint64_t>(8 - low, address + bytes - at);
    const auto mask = static_cast<std::uint32_t>(((1u << n) - 1) << low);
    const Cell fresh = Cell::of(now, mask, scope, write);
    int place_of_it = -1;
    int empty = -1;
    for (int i = 0; i < kCells; ++i) {
      const Cell c = g.cell[i];
      if (c.is_empty()) {
        if (empty < 0) empty = i;
        continue;
      }
      if (c.thread() == t.number) {
        if (c.mask() == mask && c.scope() == scope && (write || !c.is_write())) place_of_it = i;
        continue;
      }
      const Moment then = c.moment();
      const bool is_known = known.knows(then);
      if (is_known) {
        if ((c.mask() & ~mask) == 0 && (write || !c.is_write()) && place_of_it < 0) place_of_it = i;
        continue;
      }
      if ((c.mask() & mask) == 0 || !(write || c.is_write())) continue;
      const auto reaches = [&](std::uint32_t s) {
        switch (static_cast<Scope>(s)) {
          case Scope::none:
            return false;
          case Scope::block:
            return then.block() == now.block();
          case Scope::gpu:
            return gpus[then.block()] == gpus[now.block()];
          case Scope::system:
            return true;
        }
        return false;
      };
      if (c.mask() == mask && reaches(c.scope()) && reaches(scope)) continue;
      fail(t, fmt::format("a race: {} bytes at {:#x} are {}, which {} {} without an order between "
                          "them\n  there by {}\n  at {}",
                          bytes, address, write ? "written" : "read",
                          c.is_write() ? "were written" : "were read",
                          static_cast<Scope>(c.scope()) == Scope::none ? "weakly" : "strongly",
                          who ? who(c.thread()) : "another thread",
                          place ? place(g.op[i]) : "another instruction"));
    }
    if (place_of_it < 0) place_of_it = empty;
    if (place_of_it < 0) place_of_it = static_cast<int>(random_.below(kCells));
    g.cell[place_of_it] = fresh;
    g.op[place_of_it] = manner.op;
    at += n;
  }
}

// --- Weak accesses -------------------------------------------------------------------------------

void Memory::read(ThreadView& t, std::uint64_t address, std::uint32_t bytes, void* to) {
  Region& r = region(t, address, bytes);
  check(t, address, bytes, false);
  if (!r.written.empty()) {
    const std::uint64_t first = address - reinterpret_cast<std::uint64_t>(r.begin);
    for (std::uint64_t b = first; b < first + bytes; ++b) {
      if ((r.written[b / 8] >> (b % 8) & 1) == 0) {
        fail(t, fmt::format("byte {} of shared memory is read before it is written", b));
      }
    }
  }
  std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
}

void Memory::write(ThreadView& t, std::uint64_t address, std::uint32_t bytes, const void* from) {
  Region& r = region(t, address, bytes);
  check(t, address, bytes, true);
  if (!r.written.empty()) {
    const std::uint64_t first = address - reinterpret_cast<std::uint64_t>(r.begin);
    for (std::uint64_t b = first; b < first + bytes; ++b) {
      r.written[b / 8] = static_cast<std::uint8_t>(r.written[b / 8] | 1u << (b % 8));
    }
  }
  // All strong writes of these words happened before, or it was a race.
  for (std::uint64_t at = address / 8 * 8; at < address + bytes; at += 8) forget(granule(at));
  std::memcpy(reinterpret_cast<void*>(address), from, bytes);
}

}  // namespace tutti::ptx
