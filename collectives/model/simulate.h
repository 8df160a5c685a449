// A discrete-event simulation of workers that run side by side and wait for each other.
// Workers do steps, one at a time; a step begins when its messages are there and what it sends has
// room; what is on its way shares links. Ranks on cores (host_scenario.h), GPUs of a cluster
// (collectives/cluster) and the stages of a pipeline (parallel/pipeline) are scenarios of it. It
// knows no units: what goes in decides what comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/model/wires.h"

namespace tutti {

struct Scenario {
  static constexpr int kOwnCore = -1;

  /// A worker does the next step of the first of its lanes that can go on.
  struct Worker {
    std::uint32_t first_lane = 0, lanes = 1;
    int core = kOwnCore;  // that it has to itself, or shares: until it has to wait
    int first_queue =
        0;          // its steps' ends count from here, so that workers may have steps in common
    int order = 0;  // on links what workers of a smaller one send goes first
  };
  /// Steps that follow one another.
  struct Lane {
    std::uint32_t begin = 0, end = 0;
  };
  /// A step takes a message of each source when it begins, and frees their slots when its work
  /// ends; then it sends one to each of the others, `ends` from `first` on.
  struct Step {
    std::uint32_t first = 0;
    std::uint16_t sources = 0, sends = 0;
    std::uint32_t cost = 0;  // index
  };
  struct Cost {
    double work = 0;   // 0 where its messages share links
    double bytes = 0;  // of each message
    MessageCost message{};
  };
  struct End {
    int queue = 0;
    int route = 0;  // of sends
  };
  /// Messages from a worker to another, in order.
  struct Queue {
    int sender = -1, receiver = -1;  // workers; -1: nobody waits
    double credit = 0;               // until the sender sees that a slot is free again
  };
  struct Route {
    double latency = 0;                // until a message is seen that is across
    double slice = 0, slice_rate = 1;  // and so many bytes of it at that rate
    std::vector<int> links = {};       // shared fairly; the worker goes on when all is across
    Wires::Path wires{};               // passed in turn, between workers that have a core
  };

  std::vector<Worker> workers;
  std::vector<Lane> lanes;
  std::vector<Step> steps;
  std::vector<Cost> costs;
  std::vector<End> ends;
  std::vector<Queue> queues;
  std::vector<Route> routes;
  std::vector<double> rates;  // of links, in bytes
  int wires = 0;
  int cores = 0;
  double switching = 0;       // when a core passes from one worker to another
  std::uint32_t slots = 0;    // of each queue; 0: no sender waits for any
  std::uint32_t in_turn = 1;  // times that each lane does its steps
  double moment = 0;          // times so near each other are one
};

/// What has happened.
struct Course {
  struct Span {
    double start = -1, end = -1;
    bool never() const { return end < 0; }
  };
  /// One message while it moved at one rate.
  struct Flow {
    int worker = 0, route = 0;
    Span span;
    double rate = 0;
  };
  double end = 0;              // when the last step has ended, and the last message is there
  std::size_t unfinished = 0;  // lanes that wait for ever
  std::vector<double> moved;   // bytes, by link
  std::vector<Span> steps;     // recorded: what each works; of several times the last
  std::vector<Flow> flows;     // recorded
};

/// All workers begin at 0.
Course simulate(const Scenario& scenario, bool record = false);

}  // namespace tutti
