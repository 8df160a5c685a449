// What each step of a plan costs on a machine: so much for being a step, for each message, and for
// each KiB that it reads and writes, depending on where that lies.
#pragma once

#include <cstddef>

#include "collectives/model/predict.h"
#include "collectives/model/simulate.h"

namespace tutti {

/// One call, cut and weighed. Refers to what it was made from.
class Costing {
 public:
  Costing(const Workload& workload, const Platform& platform, const Plan& plan, DataPath path);

  const Tiling& tiling() const { return tiling_; }
  std::size_t block() const { return block_; }
  std::size_t block_bytes() const { return block_ * element_; }

  /// So many bytes of elements, as messages carry them; `wide`: those of a wide plan's sums.
  double on_links(double bytes, bool wide = false) const;

  struct Cost {
    double ns = 0;
    double moved = 0;   // bytes
    double memory = 0;  // bytes that go through the memory's pins
    // Messages to and from other hosts, and what each takes, which `ns` has not.
    int far_out = 0, far_in = 0;
    MessageCost message;
    double wire_in = 0;  // what each that comes has taken of the wire
  };
  /// Of `step` of a whole tile.
  Cost of(const RankPlan& plan, const Step& step) const;

 private:
  /// ns per KiB of a buffer.
  struct Speed {
    double read = 0, write = 0;
    double memory = 0;  // the part that comes from memory
  };

  Speed speed_of(double of_a_core, double of_all) const;
  /// So many bytes of slots go round and round: do they stay in the cache?
  void expect_slots(double bytes);
  double bytes_of(const Step& step) const;
  bool is_across(const Operand& o, const RankPlan& plan) const;
  void network(const RankPlan& plan, const Step& step, double bytes, Cost& cost) const;
  /// What the kernel, or the device, reads and writes by itself, as the executor has it
  /// (execute/host/remote_links.cpp); null: nothing.
  struct InPlace {
    const Operand* lent = nullptr;    // the message is sent from there
    const Operand* landed = nullptr;  // and received to there
  };
  InPlace in_place(const RankPlan& plan, const Step& step, double bytes) const;
  /// Moving that memory takes longer than within a cache, which MessageCost counts.
  double beyond_cache(const InPlace& far, const RankPlan& plan, double bytes) const;
  Speed own(const Operand& o, const RankPlan& plan) const;
  bool is_far(const Operand& o, const RankPlan& plan) const;
  double at_least_far(double ns_per_kib, const Operand& o, const RankPlan& plan) const;
  void read(const Operand& o, const RankPlan& plan, double bytes, double& ns, Cost& cost) const;
  void write(const Operand& o, const RankPlan& plan, double bytes, bool past_caches, double& ns,
             Cost& cost) const;
  double copy_ns(const Step& step, double bytes) const;

  const Machine& machine_;
  const Domains& domains_;
  const Domains& hosts_;
  int on_a_host_;  // ranks
  const PlanHeader& header_;
  bool copies_;   // other ranks' memory is not mapped
  bool windows_;  // the plan addresses other ranks' memory,
  bool shared_;   // and of that tmp alone
  bool flags_in_data_;
  double l3_bytes_;
  DataType type_;
  std::size_t element_;
  std::size_t block_ = 0;  // elements
  Tiling tiling_;
  Speed buffers_;
  Speed slots_;
  bool stream_ = false;  // results are written past the caches
};

}  // namespace tutti
