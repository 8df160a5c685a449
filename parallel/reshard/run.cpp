// A rank does what it can, and sleeps when it can do nothing: it copies what is its own, keeps
// `slots` receives and `slots` sends under way, copies from the memory of others once they have
// said that it is there, and tells others when what they wait for has arrived here.
#include "parallel/reshard/run.h"

#include <fmt/format.h>
#include <tutti/core/memory.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "parallel/reshard/events.h"
#include "parallel/reshard/places.h"

namespace tutti::parallel::reshard {

std::byte* Slots::take(std::size_t bytes) {
  if (free_.empty()) {
    all_.push_back(static_cast<std::byte*>(allocate(bytes)));
    free_.push_back(all_.back());
  }
  std::byte* const slot = free_.back();
  free_.pop_back();
  return slot;
}

Slots::~Slots() {
  for (std::byte* slot : all_) deallocate(slot);
}

namespace {

using Clock = std::chrono::steady_clock;

// Signals between two ranks that map each other's memory.
enum Signal : int {
  kReady = 0,  // the sender's sources may be read in this run
  kRelay = 1,  // what the next offer passes on has arrived
  kDone = 2,   // the reader has read everything
};

class PartRun {
 public:
  PartRun(const RunContext& context, const RankPart& part, const Memory& own,
          const BoundMemory& bound)
      : c_(context), part_(part), own_(own), bound_(bound) {
    if (c_.options.timeout.count() > 0) deadline_ = Clock::now() + c_.options.timeout;
  }

  void run() {
    try {
      greet();
      while (!is_over()) {
        const std::uint64_t seen = events_->count();
        if (advance()) continue;
        if (!events_->wait(seen, deadline_)) late();
      }
    } catch (const std::exception& e) {
      c_.comm.abort(fmt::format("reshard: rank {} gives up: {}", c_.comm.rank(), e.what()));
      end();
      throw;
    }
    end();
  }

 private:
  /// A message under way.
  struct Under {
    const PartEntry* entry;
    std::byte* slot = nullptr;   // of packed elements
    std::byte* coded = nullptr;  // slot
    std::uint64_t length = 0;    // of the coded form
    bool has_body = true;        // else its length is on the way
    Future future{};
  };

  const Message& message(const PartEntry& e) const { return c_.plan.messages[e.message]; }
  bool is_coded(int peer) const {
    return c_.options.coder != nullptr && c_.hosts[index(peer)] != c_.hosts[index(c_.comm.rank())];
  }
  std::size_t coded_bytes() const { return c_.options.coder->most(c_.plan.most_bytes); }

  [[noreturn]] void late() const {
    const PartEntry* next = nullptr;
    for (const auto* list : {&receiving_, &sending_}) {
      if (!list->empty() && (next == nullptr || list->front().entry->message < next->message)) {
        next = list->front().entry;
      }
    }
    if (next == nullptr && done_.reads < part_.reads.size()) next = &part_.reads[done_.reads];
    throw Error(
        ErrorCode::timed_out,
        fmt::format(
            "reshard: rank {} has waited for longer than the timeout of {} ms{}", c_.comm.rank(),
            std::chrono::duration_cast<std::chrono::milliseconds>(c_.options.timeout).count(),
            next == nullptr ? "" : fmt::format(", for rank {}", next->peer)),
        next == nullptr ? -1 : next->peer);
  }

  std::chrono::nanoseconds remaining() const {
    if (deadline_ == Clock::time_point::max()) return std::chrono::nanoseconds(0);
    return std::max<std::chrono::nanoseconds>(deadline_ - Clock::now(),
                                              std::chrono::milliseconds(1));
  }
  Future watched(Future future) const {
    future.on_ready([events = events_] { events->happened(); });
    return future;
  }
  Future start_message(bool sends, const void* memory, std::uint64_t bytes, int peer) {
    Call call{.collective = Collective::send_recv,
              .count = bytes,
              .type = DataType::uint8,
              .peer = peer,
              .sends = sends,
              .timeout = remaining()};
    if (sends) {
      call.in = memory;
    } else {
      call.out = const_cast<void*>(memory);
    }
    return watched(c_.comm.start(call));
  }
  Future start_wait(int peer, Signal signal) {
    return watched(c_.signals.start({.kind = WindowCall::Kind::wait_signal,
                                     .peer = peer,
                                     .index = signal,
                                     .timeout = remaining()}));
  }

  // --- Memory of others --------------------------------------------------------------------------

  /// Says that this rank's sources are ready, and begins to wait for those of others.
  void greet() {
    std::set<int> readers;
    for (const PartEntry& e : part_.offers) {
      if (readers.insert(e.peer).second) c_.signals.signal(e.peer, kReady);
    }
    for (const PartEntry& e : part_.reads) {
      if (!ready_.contains(e.peer)) ready_[e.peer] = start_wait(e.peer, kReady);
      ++reads_left_[e.peer];
    }
    for (const int reader : readers) finished_.push_back(start_wait(reader, kDone));
  }

  bool read_next() {
    if (done_.reads == part_.reads.size()) return false;
    const PartEntry& e = part_.reads[done_.reads];
    Future& ready = ready_[e.peer];
    if (!ready.ready()) return false;
    ready.wait();  // its error
    if (e.relays) {
      if (!relay_.valid()) relay_ = start_wait(e.peer, kRelay);
      if (!relay_.ready()) return false;
      relay_.wait();
      relay_ = {};
    }
    copy(c_.from, c_.to, c_.plan, message(e), bound_.of(e.peer), own_);
    c_.traffic.mapped += message(e).bytes;
    ++done_.reads;
    if (--reads_left_[e.peer] == 0) c_.signals.signal(e.peer, kDone);
    return true;
  }

  bool offer_next() {
    if (offered_ == part_.offers.size()) return false;
    const PartEntry& e = part_.offers[offered_];
    if (!done_.covers(e.needed)) return false;
    if (e.relays) c_.signals.signal(e.peer, kRelay);
    ++offered_;
    return true;
  }

  bool copy_next() {
    if (done_.copies == part_.copies.size()) return false;
    const PartEntry& e = part_.copies[done_.copies];
    if (!done_.covers(e.needed)) return false;
    copy(c_.from, c_.to, c_.plan, message(e), own_, own_);
    c_.traffic.copied += message(e).bytes;
    ++done_.copies;
    return true;
  }

  // --- Messages ----------------------------------------------------------------------------------

  bool send_next() {
    if (sent_ == part_.sends.size() || sending_.size() >= index(c_.options.slots)) return false;
    const PartEntry& e = part_.sends[sent_];
    if (!done_.covers(e.needed)) return false;
    ++sent_;
    Under under{&e};
    const Message& m = message(e);
    const std::byte* data =
        is_coded(e.peer) ? nullptr : run_of_source(c_.from, c_.to, c_.plan, m, own_);
    if (data == nullptr) {
      under.slot = c_.slots.take(c_.plan.most_bytes);
      pack(c_.from, c_.to, c_.plan, m, own_, under.slot);
      data = under.slot;
    }
    sending_.push_back(std::move(under));
    Under& last = sending_.back();
    if (is_coded(e.peer)) {
      last.coded = c_.coded.take(coded_bytes());
      last.length = c_.options.coder->encode(e.message, {data, m.bytes},
                                             {last.coded, c_.options.coder->most(m.bytes)});
      lengths_.push_back(start_message(true, &last.length, sizeof last.length, e.peer));
      last.future = start_message(true, last.coded, last.length, e.peer);
    } else {
      last.future = start_message(true, data, m.bytes, e.peer);
    }
    const bool far = c_.hosts[index(e.peer)] != c_.hosts[index(c_.comm.rank())];
    (far ? c_.traffic.sent_to_hosts : c_.traffic.sent) += last.coded ? last.length : m.bytes;
    return true;
  }

  bool end_send() {
    if (sending_.empty() || !sending_.front().future.ready()) return false;
    Under& under = sending_.front();
    if (!lengths_.empty() && under.coded != nullptr) {
      lengths_.front().wait();  // it went before
      lengths_.pop_front();
    }
    under.future.wait();
    free_slots(under);
    sending_.pop_front();
    return true;
  }

  bool receive_next() {
    if (posted_ == part_.receives.size() || receiving_.size() >= index(c_.options.slots)) {
      return false;
    }
    const PartEntry& e = part_.receives[posted_];
    // A peer's lengths and bodies come in turns: the next length behind this body.
    for (const Under& u : receiving_) {
      if (!u.has_body && u.entry->peer == e.peer) return false;
    }
    ++posted_;
    receiving_.push_back({&e});
    Under& under = receiving_.back();
    const Message& m = message(e);
    if (is_coded(e.peer)) {
      under.has_body = false;
      under.future = start_message(false, &under.length, sizeof under.length, e.peer);
      return true;
    }
    std::byte* data = run_of_target(c_.from, c_.to, c_.plan, m, own_);
    if (data == nullptr) data = under.slot = c_.slots.take(c_.plan.most_bytes);
    under.future = start_message(false, data, m.bytes, e.peer);
    return true;
  }

  /// The bodies whose lengths have come.
  bool receive_body() {
    for (Under& under : receiving_) {
      if (under.has_body || !under.future.ready()) continue;
      under.future.wait();
      const std::uint64_t most = c_.options.coder->most(message(*under.entry).bytes);
      if (under.length == 0 || under.length > most) {
        throw Error(ErrorCode::mismatch,
                    fmt::format("reshard: rank {} sends a coded message of {} bytes, and there "
                                "may be 1 to {}: its coder is another one",
                                under.entry->peer, under.length, most),
                    under.entry->peer);
      }
      under.coded = c_.coded.take(coded_bytes());
      under.has_body = true;
      under.future = start_message(false, under.coded, under.length, under.entry->peer);
      return true;
    }
    return false;
  }

  bool end_receive() {
    if (receiving_.empty() || !receiving_.front().has_body || !receiving_.front().future.ready()) {
      return false;
    }
    Under& under = receiving_.front();
    under.future.wait();
    const Message& m = message(*under.entry);
    if (under.coded != nullptr) {
      Coder& coder = *c_.options.coder;
      under.slot = c_.slots.take(c_.plan.most_bytes);
      if (coder.wants_present()) pack_present(c_.from, c_.to, c_.plan, m, own_, under.slot);
      coder.decode(under.entry->message, {under.coded, under.length}, {under.slot, m.bytes});
    }
    if (under.slot != nullptr) unpack(c_.from, c_.to, c_.plan, m, own_, under.slot);
    c_.traffic.received += under.coded != nullptr ? under.length : m.bytes;
    free_slots(under);
    receiving_.pop_front();
    ++done_.receives;
    return true;
  }

  void free_slots(Under& under) {
    if (under.slot != nullptr) c_.slots.give(std::exchange(under.slot, nullptr));
    if (under.coded != nullptr) c_.coded.give(std::exchange(under.coded, nullptr));
  }

  // --- All of it ---------------------------------------------------------------------------------

  /// Does one thing, what others wait for first; false: there is nothing to do.
  bool advance() {
    return end_receive() || end_send() || receive_body() || receive_next() || send_next() ||
           offer_next() || read_next() || copy_next() || hear_readers();
  }

  /// A reader has read all.
  bool hear_readers() {
    const auto read = std::ranges::find_if(finished_, [](const Future& f) { return f.ready(); });
    if (read == finished_.end()) return false;
    read->wait();
    finished_.erase(read);
    return true;
  }

  bool is_over() const {
    return done_.receives == part_.receives.size() && done_.reads == part_.reads.size() &&
           done_.copies == part_.copies.size() && sent_ == part_.sends.size() && sending_.empty() &&
           offered_ == part_.offers.size() && finished_.empty();
  }

  /// Waits until nothing is under way, and takes back the slots.
  void end() noexcept {
    const auto wait = [](Future& f) {
      try {
        if (f.valid()) f.wait();
      } catch (const Error&) {  // of the run, which is thrown already
      }
    };
    for (auto* list : {&sending_, &receiving_}) {
      for (Under& under : *list) {
        wait(under.future);
        free_slots(under);
      }
    }
    for (Future& f : lengths_) wait(f);
    for (auto& [peer, f] : ready_) wait(f);
    for (Future& f : finished_) wait(f);
    wait(relay_);
  }

  const RunContext& c_;
  const RankPart& part_;
  const Memory& own_;
  const BoundMemory& bound_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::shared_ptr<Events> events_ = std::make_shared<Events>();
  Arrivals done_;
  std::size_t sent_ = 0, posted_ = 0, offered_ = 0;  // begun, of sends, receives, offers
  std::deque<Under> sending_, receiving_;            // their places in memory stay
  std::deque<Future> lengths_;                       // of coded messages under way
  std::map<int, Future> ready_;                      // by peer that this rank reads from
  std::map<int, std::size_t> reads_left_;
  Future relay_;                  // the signal for the next read
  std::vector<Future> finished_;  // of those that read from this rank
};

}  // namespace

void run_part(const RunContext& context, const RankPart& part, const Memory& own,
              const BoundMemory& bound) {
  PartRun(context, part, own, bound).run();
}

}  // namespace tutti::parallel::reshard
