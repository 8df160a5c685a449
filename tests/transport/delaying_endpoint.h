// A network that delays: an endpoint that holds back what it is given to send, for a random number
// of polls, before it hands it on to another endpoint. Where that one keeps no order, messages
// overtake each other. All of it is drawn from a seed. The other network must not need to know
// users' memory (Endpoint::Abilities::registers), whose regions are valid for the length of a call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transport/network/endpoint.h"

namespace tutti::test {

class DelayingEndpoint final : public Endpoint {
 public:
  DelayingEndpoint(Sink& sink, std::unique_ptr<Endpoint> network, unsigned seed)
      : Endpoint(sink), network_(std::move(network)), random_(seed) {}

  const Abilities& abilities() const override { return network_->abilities(); }
  std::string carrier() const override { return network_->carrier() + ", delayed"; }
  std::vector<std::byte> address() override { return network_->address(); }
  void connect(std::span<const std::byte> address) override { network_->connect(address); }
  void connect(Stream first, Stream second, bool sends_on_second) override {
    network_->connect(std::move(first), std::move(second), sends_on_second);
  }
  void add_stripe(Stream stripe) override { network_->add_stripe(std::move(stripe)); }
  std::shared_ptr<MemoryRegion> register_ring(std::byte* memory, std::size_t bytes) override {
    return network_->register_ring(memory, bytes);
  }

  Room room(std::size_t) override { return held_.size() < kMostHeld ? Room::yes : Room::none; }
  void put(const Put& put) override {
    Held& h = hold();
    h.put = put;
    h.number = ++appended_;
  }
  bool send(const MessageHeader& header, const void* control) override {
    if (held_.size() >= kMostHeld) return false;
    Held& h = hold();
    h.put.header = header;
    std::memcpy(h.control.data(), control, header.bytes);
    return true;
  }
  bool submit() override {
    release();
    return false;
  }
  void poll() override {
    for (Held& h : held_) h.polls -= h.polls > 0 ? 1 : 0;
    network_->poll();
    release();
  }

  std::uint64_t appended() const override { return appended_; }
  std::uint64_t completed() const override {
    std::uint64_t completed = appended_;
    for (const Held& h : held_) {
      if (h.number != 0) completed = std::min(completed, h.number - 1);
    }
    for (const auto& [theirs, ours] : handed_on_) {
      if (theirs > network_->completed()) completed = std::min(completed, ours - 1);
    }
    return completed;
  }
  bool is_flushed() override { return held_.empty() && network_->is_flushed(); }
  bool is_delivered() override { return held_.empty() && network_->is_delivered(); }
  void take_back(const std::byte* begin, const std::byte* end) override {
    for (Held& h : held_) {
      const std::size_t bytes = h.put.header.total_bytes();
      if (h.number != 0 && h.put.payload < end && begin < h.put.payload + bytes) copy(h);
    }
    network_->take_back(begin, end);
  }
  void redirect(std::uint32_t link) override { network_->redirect(link); }
  std::array<int, 2> descriptors() const override { return network_->descriptors(); }
  bool arm() override { return held_.empty() && network_->arm(); }
  bool wants_room(std::size_t which) const override { return network_->wants_room(which); }
  void drain(bool hard) override {
    for (Held& h : held_) {
      if (h.number != 0 && !h.put.keeps) copy(h);
    }
    network_->drain(hard);
  }
  void close(bool in_peace) override {
    held_.clear();
    network_->close(in_peace);
  }

 private:
  static constexpr std::size_t kMostHeld = 24;
  static constexpr unsigned kMostPolls = 6;

  /// A message, or a control message, that has not been handed on.
  struct Held {
    Put put;
    std::array<std::byte, kMostControl> control;
    std::uint64_t number = 0;  // of a message
    unsigned polls = 0;        // that are left to wait
  };

  /// From now on the message lies in memory of its own, which no region knows.
  static void copy(Held& h) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(
        h.put.payload, h.put.payload + h.put.header.total_bytes());
    h.put.payload = bytes->data();
    h.put.keeps = bytes;
    h.put.region = nullptr;
  }
  Held& hold() {
    Held& h = held_.emplace_back();
    h.polls = random_() % 3 == 0 ? random_() % kMostPolls : 0;
    return h;
  }
  void release() {
    const std::uint64_t theirs = network_->completed();
    std::erase_if(handed_on_, [&](const auto& pair) { return pair.first <= theirs; });
    for (auto it = held_.begin(); it != held_.end();) {
      if (it->polls == 0 && hand_on(*it)) {
        it = held_.erase(it);
      } else if (abilities().ordered) {
        break;
      } else {
        ++it;
      }
    }
    network_->submit();
  }
  bool hand_on(const Held& h) {
    if (h.number == 0) return network_->send(h.put.header, h.control.data());
    if (network_->room(h.put.header.bytes) != Room::yes) return false;
    network_->put(h.put);
    handed_on_.emplace_back(network_->appended(), h.number);
    return true;
  }

  const std::unique_ptr<Endpoint> network_;
  std::mt19937 random_;
  std::deque<Held> held_;
  std::uint64_t appended_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> handed_on_;  // their number and ours
};

}  // namespace tutti::test
