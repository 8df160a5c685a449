// The first failure of a communicator: as a value, as a record in memory that the ranks of a host
// share, and as bytes for the ranks of other hosts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "transport/host/connection.h"

namespace tutti {

struct Failure {
  ErrorCode code = ErrorCode::internal;
  int rank = -1;
  std::string text;
  // Of peer_lost: the rank, and its host, may well be there, but nothing comes through.
  bool cut_off = false;
};

/// Written once, read by everyone. Zeros at first. Waiting ranks poll the first word, so the record
/// begins a cache line that is otherwise never written.
struct alignas(kCacheLine) FailureRecord {
  std::atomic<std::uint32_t> state;  // 0 none, 1 being written, 2 there
  std::atomic<std::uint32_t> code;
  std::atomic<std::int32_t> rank;
  std::atomic<std::uint32_t> cut_off;
  std::array<char, 1024> text;

  bool is_there() const { return state.load(std::memory_order_relaxed) != 0; }
  /// False: there is a failure already.
  bool write(const Failure& failure);
  /// None: nobody has written one, or its writer is still at it.
  std::optional<Failure> read() const;
};

/// Failures travel between hosts in the byte order of the machine.
std::vector<std::byte> to_bytes(const Failure& failure);
std::optional<Failure> failure_from(std::span<const std::byte> bytes, int ranks);

}  // namespace tutti
