#include "parallel/broadcast.h"

#include <cstring>
#include <vector>

namespace tutti::parallel {
namespace {

constexpr std::size_t kLarge = 64u << 10;    // sent by itself
constexpr std::size_t kTogether = 1u << 20;  // the most that small ones make

void broadcast(Axis& axis, std::byte* data, std::size_t bytes, int root) {
  Call call = call_of(Collective::broadcast, data, data, bytes, DataType::uint8);
  call.root = root;
  axis.run(call);
}

}  // namespace

void broadcast_all(Axis& axis, std::span<const std::span<std::byte>> pieces, int root) {
  std::vector<std::span<std::byte>> small;
  std::vector<std::byte> together;
  const auto send_small = [&] {
    if (together.empty()) return;
    broadcast(axis, together.data(), together.size(), root);
    const std::byte* from = together.data();
    for (const auto& piece : small) {
      std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    }
    small.clear();
    together.clear();
  };
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;  // and has no memory
    if (piece.size() >= kLarge || axis.device().owns(piece.data())) {
      broadcast(axis, piece.data(), piece.size(), root);
      continue;
    }
    if (together.size() + piece.size() > kTogether) send_small();
    together.insert(together.end(), piece.begin(), piece.end());
    small.push_back(piece);
  }
  send_small();
}

}  // namespace tutti::parallel
