#include "collectives/model/cost.h"

#include <algorithm>
#include <cmath>

#include "collectives/connection_shape.h"
#include "core/compressed.h"

namespace tutti {
namespace {

constexpr double kKiB = 1024;
// The kernel hands about so much at a time to the wire, and to the receiver.
constexpr double kSegment = 16 * kKiB, kPackets = 8 * kKiB;

/// A cache does not end at its size: from half of it on some is missing, at twice its size all.
double missing(double bytes, double cache) {
  return bytes > 0 ? std::clamp(std::log2(2 * bytes / std::max(cache, 1.0)) / 2, 0.0, 1.0) : 0;
}

}  // namespace

Costing::Costing(const Workload& w, const Platform& p, const Plan& plan, DataPath path)
    : machine_(p.machine),
      domains_(p.domains),
      hosts_(p.hosts),
      on_a_host_(p.ranks_of_a_host()),
      header_(plan.header),
      copies_(w.access == Access::copies),
      windows_(path.windows),
      shared_(path.shares_tmp()),
      flags_in_data_(p.flags_in_data),
      l3_bytes_(p.machine.l3_bytes * p.caches_of_a_host()),
      type_(w.type),
      element_(size_of(w.type)) {
  const auto blocks_of = [&](int rank) {
    return in_blocks(w.collective, p.ranks, rank, 0) + out_blocks(w.collective, p.ranks, rank, 0);
  };
  const std::size_t widest = std::max(
      {in_blocks(w.collective, p.ranks, 0, 0), out_blocks(w.collective, p.ranks, 0, 0), 1U});
  block_ = w.bytes / widest / element_;
  if (w.bytes > 0) block_ = std::max<std::size_t>(block_, 1);
  tiling_ = cut(header_, path, block_, w.bytes, type_, p.links, p.tile_bytes, p.least_piece);

  // A rank that is no root has the usual number of blocks; roots alone have more.
  const double mine = static_cast<double>(block_ * element_) * blocks_of(p.ranks > 1 ? 1 : 0);
  const double sharing = std::max(1.0, static_cast<double>(p.ranks) / p.cores);
  buffers_ = speed_of(mine * sharing, mine * on_a_host_);
  // A message to a rank on the same core stays in its cache. Which ranks share a core is not known.
  const double same_core =
      p.ranks > p.cores ? std::min((sharing - 1) / std::max(on_a_host_ - 1, 1), 1.0) : 0;
  slots_ = {std::lerp(machine_.slot_read, machine_.l2_read, same_core),
            std::lerp(machine_.slot_write, machine_.l2_write, same_core), 0};
  std::size_t slots = 0;
  for (const RankPlan& rank : plan.ranks) slots = std::max(slots, slots_in_use(rank, p.links));
  if (path.link_data) expect_slots(static_cast<double>(slots) * on_a_host_);
  stream_ = writes_past_caches(bytes_in_caches(w.bytes, slots, on_a_host_),
                               static_cast<std::size_t>(l3_bytes_));
}

void Costing::expect_slots(double bytes) {
  slots_.memory = missing(bytes, l3_bytes_);
  slots_.read = std::lerp(slots_.read, std::max(slots_.read, machine_.memory_read), slots_.memory);
  slots_.write =
      std::lerp(slots_.write, std::max(slots_.write, machine_.memory_write), slots_.memory);
}

Costing::Cost Costing::of(const RankPlan& plan, const Step& step) const {
  Cost cost;
  cost.ns = machine_.step_ns;
  const auto links = [&](std::span<const Operand> operands) {
    return static_cast<double>(std::ranges::count_if(operands, &Operand::is_link));
  };
  cost.ns += machine_.link_ns * (links(plan.sources(step)) + links(plan.destinations(step)));
  const double bytes = bytes_of(step);
  if (hosts_.count() > 1) network(plan, step, bytes, cost);
  if (bytes == 0) return cost;
  const InPlace far = in_place(plan, step, bytes);
  double memory_ns = beyond_cache(far, plan, bytes);
  const bool copied_out =
      copies_ && std::ranges::any_of(plan.destinations(step), &Operand::is_buffer_of_another);
  const bool past_caches = stream_ && links(plan.destinations(step)) == 0 && !copied_out;
  const bool plain = step.sources == 1;
  const auto stored = [&](const Operand& o, bool wide_links) {
    const bool wide = o.is_link() ? wide_links : o.space == Space::tmp;
    return wide ? bytes * static_cast<double>(widening(header_, type_)) : bytes;
  };
  for (const Operand& o : plan.sources(step)) {
    double ns = 0;
    read(o, plan, stored(o, takes_wide(step)), ns, cost);
    if (far.landed != nullptr && o.is_link()) ns = plain ? 0 : machine_.l2_read * bytes / kKiB;
    // Where it is moved only to be sent, or only lands, no core reads it.
    const bool only_sent = plain && &o == far.lent &&
                           links(plan.destinations(step)) == static_cast<double>(step.destinations);
    if (!only_sent) memory_ns += ns;
    if (copies_ && o.is_buffer_of_another()) memory_ns += copy_ns(step, bytes);
  }
  for (const Operand& o : plan.destinations(step)) {
    double ns = 0;
    write(o, plan, stored(o, sends_wide(plan, step)), past_caches, ns, cost);
    const bool lent = far.lent != nullptr && o.is_link();
    if (!lent && !(plain && &o == far.landed)) memory_ns += ns;
    if (copies_ && o.is_buffer_of_another()) memory_ns += copy_ns(step, bytes);
  }
  const double arithmetic =
      step.sources > 1 ? reduce_cost(machine_, type_) * bytes / kKiB * step.sources : 0;
  cost.ns += std::max(arithmetic, memory_ns);
  return cost;
}

Costing::Speed Costing::speed_of(double of_a_core, double of_all) const {
  const double beyond_l2 = missing(of_a_core, machine_.l2_bytes);
  const double beyond_l3 = missing(of_all, l3_bytes_);
  const auto mix = [&](double l2, double l3, double memory) {
    return std::lerp(std::lerp(l2, l3, beyond_l2), memory, beyond_l3);
  };
  return {mix(machine_.l2_read, machine_.l3_read, machine_.memory_read),
          mix(machine_.l2_write, machine_.l3_write, machine_.memory_write), beyond_l3};
}

double Costing::bytes_of(const Step& step) const {
  std::size_t elements = 0;
  for (std::uint32_t i = 0; i < step.count; ++i) {
    elements += chunk_extent(tiling_, 0, block_, element_, header_.pieces,
                             (step.shape_chunk + i) % header_.pieces)
                    .count;
  }
  return static_cast<double>(elements * element_);
}

double Costing::on_links(double bytes, bool wide) const {
  if (header_.format != Format::compressed) {
    return wide ? bytes * static_cast<double>(widening(header_, type_)) : bytes;
  }
  constexpr std::size_t kBlock = 64;  // bytes; core/compressed.h
  return bytes * static_cast<double>(compressed_bytes(type_, kBlock / element_)) / kBlock;
}

/// How much longer it takes that the kernel copies one of the step's operands than to address it.
double Costing::copy_ns(const Step& step, double bytes) const {
  const double pages = machine_.copy_pages * bytes / kKiB;
  if (step.sources == 1 && step.destinations == 1) return machine_.copy_ns + pages;
  const double pieces = std::ceil(bytes / static_cast<double>(copied_piece(step.sources)));
  const double through_ours = (machine_.l2_write + machine_.l2_read) * bytes / kKiB;
  return machine_.copy_ns * pieces + pages + through_ours;
}

bool Costing::is_across(const Operand& o, const RankPlan& plan) const {
  return o.is_link() && !hosts_.near(o.rank, plan.rank);
}

/// What its messages to and from other hosts take of this core, and of the wires.
void Costing::network(const RankPlan& plan, const Step& step, double bytes, Cost& cost) const {
  const auto across = [&](std::span<const Operand> side) {
    return static_cast<int>(
        std::ranges::count_if(side, [&](const Operand& o) { return is_across(o, plan); }));
  };
  cost.far_out = across(plan.destinations(step));
  cost.far_in = across(plan.sources(step));
  cost.ns += (cost.far_out + cost.far_in) * machine_.net_message_ns;
  const double out = on_links(bytes, sends_wide(plan, step));
  const double in = on_links(bytes, takes_wide(step));
  const auto wire = [&](double b) { return machine_.net_wire * (b + sizeof(SlotHeader)) / kKiB; };
  cost.message = {machine_.net_send * out / kKiB, wire(out), machine_.net_receive * in / kKiB,
                  out > kSegment ? kSegment / out : 1, in > kPackets ? kPackets / in : 1};
  cost.wire_in = wire(in);
}

Costing::InPlace Costing::in_place(const RankPlan& plan, const Step& step, double bytes) const {
  InPlace far;
  if (hosts_.count() == 1 || bytes < kZeroCopyBytes) return far;
  if (header_.format == Format::compressed || widening(header_, type_) > 1) return far;
  const auto sources = plan.sources(step), destinations = plan.destinations(step);
  const auto is_memory = [](const Operand& o) { return !o.is_link(); };
  const auto is_remote = [](const Operand& o) { return o.is_remote(); };
  if (std::ranges::any_of(sources, is_remote) || std::ranges::any_of(destinations, is_remote)) {
    return far;
  }
  const auto crosses = [&](const Operand& o) { return is_across(o, plan); };
  const auto may_be_lent = [&](const Operand& o) {
    return is_memory(o) && (o.space == Space::in || !windows_);
  };
  const auto sends = std::ranges::count_if(destinations, &Operand::is_link);
  if (sends > 0 && sends == std::ranges::count_if(destinations, crosses)) {
    const auto written = std::ranges::find_if(destinations, may_be_lent);
    if (step.sources == 1 && may_be_lent(sources[0])) {
      far.lent = &sources[0];
    } else if (written != destinations.end()) {
      far.lent = &*written;
    }
  }
  if (std::ranges::count_if(sources, &Operand::is_link) == 1 &&
      std::ranges::count_if(sources, crosses) == 1) {
    const auto to = std::ranges::find_if(destinations, is_memory);
    const auto is_read = [&](const Operand& o) { return to != destinations.end() && o == *to; };
    if (to != destinations.end() && std::ranges::none_of(sources, is_read)) far.landed = &*to;
  }
  return far;
}

double Costing::beyond_cache(const InPlace& far, const RankPlan& plan, double bytes) const {
  double ns = 0;
  if (far.lent != nullptr) ns += std::max(own(*far.lent, plan).read - machine_.l2_read, 0.0);
  if (far.landed != nullptr) ns += std::max(own(*far.landed, plan).write - machine_.l2_write, 0.0);
  return ns * bytes / kKiB;
}

bool Costing::is_far(const Operand& o, const RankPlan& plan) const {
  return (o.is_link() || o.is_remote()) && hosts_.near(o.rank, plan.rank) &&
         !domains_.near(o.rank, plan.rank);
}
double Costing::at_least_far(double ns_per_kib, const Operand& o, const RankPlan& plan) const {
  return is_far(o, plan) ? std::max(ns_per_kib, machine_.far_data) : ns_per_kib;
}

/// tmp serves every tile anew, so it stays in a cache that the buffers do not fit.
Costing::Speed Costing::own(const Operand& o, const RankPlan& plan) const {
  if (o.space != Space::tmp) return buffers_;
  const double tile =
      static_cast<double>(std::min(tiling_.tile, block_) * element_) / header_.pieces;
  const double bytes = tile * plan.tmp_chunks;
  const Speed tmp = speed_of(bytes, bytes * on_a_host_);
  return tmp.read < buffers_.read ? tmp : buffers_;
}

void Costing::read(const Operand& o, const RankPlan& plan, double bytes, double& ns,
                   Cost& cost) const {
  cost.moved += bytes;
  if (o.is_link()) {
    if (bytes <= kInlineBytes) return;
    ns += at_least_far(slots_.read, o, plan) * bytes / kKiB;
    // The first line comes once the header is there, unless flags are in the data.
    if (!flags_in_data_ && !is_across(o, plan)) {
      ns += is_far(o, plan) ? machine_.far_latency_ns : machine_.latency_ns;
    }
    cost.memory += slots_.memory * bytes;
    return;
  }
  const Speed speed = own(o, plan);
  // Another rank's results were written a moment ago, by another core: they come as slots do.
  const bool foreign = o.is_remote() && o.space != Space::in && o.rank != plan.rank;
  const double ns_per_kib = foreign ? std::max(slots_.read, speed.read) : speed.read;
  ns += at_least_far(ns_per_kib, o, plan) * bytes / kKiB;
  if (foreign && shared_) {  // the first line comes once the signal is there
    ns += is_far(o, plan) ? machine_.far_latency_ns : machine_.latency_ns;
  }
  cost.memory += speed.memory * bytes;
}

void Costing::write(const Operand& o, const RankPlan& plan, double bytes, bool past_caches,
                    double& ns, Cost& cost) const {
  cost.moved += bytes;
  if (o.is_link()) {
    if (bytes <= kInlineBytes) return;
    ns += slots_.write * bytes / kKiB;
    cost.memory += slots_.memory * 2 * bytes;
    return;
  }
  const Speed speed = own(o, plan);
  // Others have read it before, as they have a slot.
  const double shared = shared_ && o.space == Space::tmp ? slots_.write : 0;
  const double ns_per_kib = std::max(past_caches ? machine_.stream_write : speed.write, shared);
  ns += at_least_far(ns_per_kib, o, plan) * bytes / kKiB;
  // An ordinary store to memory reads the line before it writes it back.
  cost.memory += past_caches ? bytes : speed.memory * 2 * bytes;
}

}  // namespace tutti
