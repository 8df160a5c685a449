// Wires, which messages pass in turn: one out of the sender's host, one into the receiver's, the
// second as soon as the first part is there. A receiver takes in what comes while it waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace tutti {

/// The time of a message over wires, without its steps: of the sender's core, of the wire, and of
/// the receiver's core, which begins while it waits for the rest.
struct MessageCost {
  double send = 0, wire = 0, receive = 0;
  double first = 1;  // the part that is sent before the wire begins
  double last = 1;   // the part that is received after the wire has ended
};

class Wires {
 public:
  Wires(int wires, std::size_t queues, std::size_t receivers);

  struct Path {
    int out = -1, in = -1;
    double latency = 0;
  };
  void depart(int queue, int receiver, const Path& way, const MessageCost& cost, double now);

  struct Arrival {
    int queue = 0;
    double time = 0;
  };
  /// When the next message goes from one wire to the other; infinite: none does.
  double next() const;
  /// Takes the message that next() tells of. Messages pass in the order in which they leave.
  Arrival pass();

  /// What has come for a receiver that was idle since then, as far as it can be taken in by now.
  void take_in(int receiver, double idle_since, double now);
  /// What is left to do of message `number` of a queue, which is done at once.
  double finish(int receiver, int queue, std::uint32_t number);

 private:
  /// About to leave one wire for another.
  struct Departure {
    int queue = 0, receiver = 0;
    Path way;
    double begins = 0, ends = 0;
    MessageCost cost;
    friend bool operator>(const Departure& a, const Departure& b) { return a.begins > b.begins; }
  };
  /// Its receiver has yet to take it in.
  struct Coming {
    int queue = 0;
    std::uint32_t number = 0;
    double begins = 0, arrives = 0;
    double work = 0, left = 0;  // the receiver's
    double last = 0;            // that cannot be done before all has arrived
  };

  std::vector<double> busy_;             // by wire: until when what was sent keeps it busy
  std::vector<std::uint32_t> departed_;  // by queue
  std::vector<std::vector<Coming>> coming_;
  std::priority_queue<Departure, std::vector<Departure>, std::greater<>> departures_;
};

}  // namespace tutti
