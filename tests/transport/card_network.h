// A one-sided network whose cards are code of this process, with both ends in it: for what RDMA
// does with memory of GPUs. A card reads a payload some time after put(), and writes it to where
// its peer's registered memory is; it says later that it has. Access to memory that is not
// registered (any more) ends the process. Memory of a GPU is reached through its dma-buf alone, if
// that is a file of memory: what a processor may not touch can be mapped without access.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/transport/wire_ends.h"
#include "transport/network/endpoint.h"

namespace tutti::test {

/// What a card's writes to the memory of a dma-buf become: the GPU's matter. By the inode of its
/// file; without one, they are there at once.
using CardWrites =
    std::function<void(std::size_t offset, const std::byte* from, std::size_t bytes)>;
void set_card_writes(ino_t file, CardWrites writes);

/// How all cards behave from now on.
struct CardSettings {
  std::atomic<bool> holds{false};             // nothing leaves
  std::atomic<bool> has_device_memory{true};  // register_device() works
};
CardSettings& card_settings();
/// So many messages have been written into memory of a GPU, or read from there.
struct CardCounts {
  std::uint64_t into_gpu = 0, out_of_gpu = 0;
};
CardCounts card_counts();

/// An endpoint of such a network.
std::unique_ptr<Endpoint> make_card_endpoint(Endpoint::Sink& sink, unsigned seed);

/// Its endpoints for communicators.
class CardEndpoints final : public EndpointMaker {
 public:
  std::unique_ptr<Endpoint> make(Endpoint::Sink& sink, int, int) override {
    return make_card_endpoint(sink, ++seed_);
  }

 private:
  unsigned seed_ = 0;
};

class CardNetwork final : public TestNetwork {
 public:
  std::unique_ptr<Endpoint> make(int side, Endpoint::Sink& sink) override {
    return make_card_endpoint(sink, static_cast<unsigned>(side) + 1);
  }
};

}  // namespace tutti::test
