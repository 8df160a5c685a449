// A rank carries out its messages in the order of the plan, with receives posted ahead. On a GPU
// all of it is work on streams: what a step needs, it waits for on the program's stream
// (Pending::wait(), axis.h), and the host goes on to the next one.
//
// Why nobody waits for ever: of the messages that are not over, the first one of the plan is the
// next one of its sender, whose slot is free as earlier sends are over, and has been posted by its
// receiver. On the program's stream only earlier messages come before it.
#include "parallel/reshard/run_over_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>

#include "core/error.h"
#include "parallel/reshard/places.h"

namespace tutti::parallel::reshard {
namespace {

class AxisRun {
 public:
  AxisRun(const AxisContext& context, const RankPart& part, const Memory& own)
      : c_(context), part_(part), own_(own), device_(context.axis.device()) {}

  void run() {
    try {
      run_all();
    } catch (const std::exception& e) {
      c_.axis.abort(fmt::format("reshard: rank {} gives up: {}", c_.axis.rank(), e.what()));
      end();
      throw;
    }
  }

 private:
  void run_all() {
    for (std::size_t i = 0; i < index(c_.slots); ++i) post();
    // The three lists are in the order of the plan.
    auto copy = part_.copies.begin();
    auto send = part_.sends.begin();
    const auto is_next = [&](const auto& at, const auto& end, std::uint32_t limit) {
      return at != end && at->message < limit;
    };
    constexpr std::uint32_t kNone = ~std::uint32_t{0};
    for (;;) {
      const std::uint32_t arrives = receiving_.empty() ? kNone : receiving_.front().entry->message;
      const std::uint32_t leaves = send == part_.sends.end() ? kNone : send->message;
      if (is_next(copy, part_.copies.end(), std::min(arrives, leaves))) {
        carry(*copy++);
      } else if (leaves < arrives) {
        start_send(*send++);
      } else if (arrives != kNone) {
        end_receive();
      } else {
        break;
      }
    }
    while (!sending_.empty()) end_send();
    device_.synchronize(device_.record(device_.current()));
    c_.axis.check_failure();
  }

  /// After a failure: no slot is freed that work under way may use.
  void end() noexcept {
    for (auto* list : {&sending_, &receiving_}) {
      for (Under& under : *list) {
        try {
          under.pending.wait();
        } catch (const Error&) {  // of the run, which is thrown already
        }
      }
    }
    try {
      device_.synchronize(device_.record(device_.current()));
    } catch (const Error&) {  // NOLINT: the GPU does nothing any more
    }
  }

  /// A message under way.
  struct Under {
    const PartEntry* entry;
    Buffer slot;  // none: it lies in one run
    Pending pending;
  };
  const Message& message(const PartEntry& e) const { return c_.plan.messages[e.message]; }

  void carry(const PartEntry& e) {
    copy(c_.from, c_.to, c_.plan, message(e), own_, own_, device_);
    c_.traffic.copied += message(e).bytes;
  }

  void start_send(const PartEntry& e) {
    if (sending_.size() == index(c_.slots)) end_send();
    const Message& m = message(e);
    Under under{&e, {}, {}};
    const std::byte* data = run_of_source(c_.from, c_.to, c_.plan, m, own_);
    if (data == nullptr) {
      under.slot = c_.memory.allocate(c_.plan.most_bytes);
      pack(c_.from, c_.to, c_.plan, m, own_, under.slot.data(), device_);
      data = under.slot.data();
    }
    under.pending = c_.axis.send(data, m.bytes, DataType::uint8, e.peer);
    const bool far = c_.plan.hosts[index(m.from)] != c_.plan.hosts[index(m.to)];
    (far ? c_.traffic.sent_to_hosts : c_.traffic.sent) += m.bytes;
    sending_.push_back(std::move(under));
  }

  void end_send() {
    sending_.front().pending.wait();
    sending_.pop_front();
  }

  /// Begins the next receive, if there is one.
  void post() {
    if (posted_ == part_.receives.size()) return;
    const PartEntry& e = part_.receives[posted_++];
    const Message& m = message(e);
    Under under{&e, {}, {}};
    std::byte* data = run_of_target(c_.from, c_.to, c_.plan, m, own_);
    if (data == nullptr) {
      under.slot = c_.memory.allocate(c_.plan.most_bytes);
      data = under.slot.data();
    }
    under.pending = c_.axis.recv(data, m.bytes, DataType::uint8, e.peer);
    receiving_.push_back(std::move(under));
  }

  void end_receive() {
    {
      Under under = std::move(receiving_.front());
      receiving_.pop_front();
      under.pending.wait();
      const Message& m = message(*under.entry);
      if (under.slot) unpack(c_.from, c_.to, c_.plan, m, own_, under.slot.data(), device_);
      c_.traffic.received += m.bytes;
    }
    post();
  }

  const AxisContext& c_;
  const RankPart& part_;
  const Memory& own_;
  Device& device_;
  std::size_t posted_ = 0;
  std::deque<Under> sending_, receiving_;
};

}  // namespace

void run_over_axis(const AxisContext& context, const RankPart& part, const Memory& own) {
  AxisRun(context, part, own).run();
}

}  // namespace tutti::parallel::reshard
