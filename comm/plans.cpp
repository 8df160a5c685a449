#include "comm/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "collectives/cut.h"
#include "collectives/model/hosts.h"
#include "collectives/model/rounding.h"
#include "collectives/needs.h"
#include "collectives/text/text.h"
#include "core/error.h"
#include "device/team.h"
#include "execute/cuda/executor.h"
#include "transport/sockets/handshake.h"

namespace tutti {

namespace {

/// The same in every build, whatever its C++ library: ranks compare it.
std::uint64_t identity_of(std::string_view text) {
  const protocol::Bytes32 digest = protocol::hash({}, "plan", {std::as_bytes(std::span(text))});
  std::uint64_t identity = 0;
  for (std::size_t i = 0; i < sizeof identity; ++i) {
    identity = identity << 8 | std::to_integer<std::uint64_t>(digest[i]);
  }
  return identity;
}

}  // namespace

static_assert(kMostChannels == kPlanChannels && kOwnChannels <= kFirstChannels);

namespace {

/// The same ranks with GPUs instead of cores.
Platform on_gpus(const Platform& host) {
  Platform p = gpu_platform(host.ranks);
  p.hosts = host.hosts;
  p.machine.net_latency_ns = host.machine.net_latency_ns;
  p.machine.net_message_ns = host.machine.net_message_ns;
  p.machine.net_send = host.machine.net_send;
  p.machine.net_receive = host.machine.net_receive;
  p.machine.net_wire = host.machine.net_wire;
  return p;
}

}  // namespace

Plans::Plans(int rank, const Platform& platform, std::vector<Domains> gpu_layouts,
             std::string_view algorithm, bool windows, SumRules rules, Findings& findings,
             Access plain)
    : rank_(rank),
      ranks_(platform.ranks),
      windows_(windows),
      links_(platform.links),
      rules_(rules),
      hosts_(platform.hosts),
      layouts_{platform.layout()},
      gpu_layouts_(std::move(gpu_layouts)),
      subtrees_{Domains::subtrees(hosts_)},
      chooser_(platform),
      gpu_chooser_(on_gpus(platform)),
      findings_(findings) {
  for (const Algorithm& a : algorithms()) {
    if (a.name != algorithm || a.compressed || !chooser_.may_run(a)) continue;
    wished_[static_cast<std::size_t>(a.collective)] = &a;
    if (rules_.round_once && !chooser_.rounds_once(a)) conflicts_.insert(a.collective);
  }
  if (windows_) chooser_.prepare(findings_, rank_, plain);
}

bool Plans::must_round_once(const Signature& call) const {
  // Invariant sums are rounded once.
  return rules_.round_once && !rules_.invariant && is_reduction(call.collective) &&
         rounds_when_stored(call.kind, call.type);
}

bool Plans::must_be_invariant(const Signature& call) const {
  return rules_.invariant && is_reduction(call.collective) && order_matters(call.kind, call.type);
}

void Plans::check_invariance(const Signature& call) const {
  const auto refuse = [&](const std::string& whose, const char* what_to_do) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("{} of {}: the bits of {} are its own, but they are to be invariant "
                            "(Options::invariant, TUTTI_INVARIANT); {}",
                            name(call.collective), name(call.type), whose, what_to_do));
  };
  if (const ReadyPlan* const given = users(call.collective, call.root, false)) {
    if (given->rounds_once || !rounds_when_stored(call.kind, call.type)) return;
    refuse(fmt::format("the plan \"{}\" that was given for it", given->plan.header.algorithm),
           "it rounds partial sums of this type: take a wide plan, as hierarchical_direct has with "
           "--invariant, or one that sums all inputs in one step, as two_shot does");
  }
  const Algorithm* const wished = wished_for(call);
  if (wished == nullptr || wished->invariant) return;
  refuse(fmt::format("the algorithm {} (TUTTI_ALGORITHM)", wished->name),
         "`tutti plan list` says whose are");
}

void Plans::check(const Signature& call) const {
  if (call.compressed && (must_be_invariant(call) || must_round_once(call))) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("{} of {}: the call is compressed (Call::compressed), but sums are to "
                            "be {}",
                            name(call.collective), name(call.type),
                            must_be_invariant(call)
                                ? "invariant (Options::invariant, TUTTI_INVARIANT)"
                                : "rounded once (Options::round_once, TUTTI_ROUND_ONCE)"));
  }
  if (must_be_invariant(call)) check_invariance(call);
  if (!must_round_once(call)) return;
  const auto refuse = [&](const std::string& what) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("{} of {}: {} rounds sums more than once on {} ranks, but they are to be "
                    "rounded once (Options::round_once, TUTTI_ROUND_ONCE)",
                    name(call.collective), name(call.type), what, ranks_));
  };
  if (const ReadyPlan* const given = users(call.collective, call.root, false)) {
    if (!given->rounds_once) refuse("the plan that was given for it");
    return;
  }
  if (conflicts_.contains(call.collective)) {
    refuse(fmt::format("the algorithm {} (TUTTI_ALGORITHM)",
                       wished_[static_cast<std::size_t>(call.collective)]->name));
  }
}

Workload Plans::workload_of(const Signature& call, std::size_t bytes, Access access) const {
  return {call.collective,
          bytes,
          call.type,
          windows_ ? access : Access::none,
          must_round_once(call),
          must_be_invariant(call),
          call.compressed};
}

double Plans::predict(const Signature& call, std::size_t bytes, Access access) {
  const std::vector<Prediction> all = chooser_.candidates(workload_of(call, bytes, access));
  const Algorithm* const wished = wished_for(call);
  const auto found = std::ranges::find(all, wished, &Prediction::algorithm);
  if (found != all.end()) return found->ns;
  return all.empty() ? 0 : all.front().ns;
}

const ReadyPlan& Plans::get(const Signature& call, std::size_t bytes, Access access, Where where) {
  const Collective collective = call.collective;
  const int root = call.root;
  if (!windows_) access = Access::none;
  const ReadyPlan* found = users(collective, root, call.compressed);
  if (found != nullptr) {
    if (access < access_needed(found->path.windows, found->path.shares_tmp())) {
      throw Error(ErrorCode::invalid_usage,
                  "the plan that was given for " + std::string(name(collective)) +
                      " addresses other ranks' memory, but a buffer of this call is not from "
                      "tutti::allocate and the kernel does not let ranks copy from each other "
                      "(TUTTI_CMA), or it is memory of a GPU that other processes cannot map, or "
                      "windows are switched off (TUTTI_WINDOWS)");
    }
  } else {
    // On GPUs blocks of any size have no window: see gpu-status.md.
    if (collective == Collective::all_to_all_v && where == Where::gpu) access = Access::none;
    const Algorithm* a = wished_for(call);
    if (a == nullptr) a = uneven(collective, access);
    if (a == nullptr || access < a->needs()) {
      Chooser& chooser = where == Where::host ? chooser_ : gpu_chooser_;
      a = &chooser.choose(workload_of(call, bytes, access), &findings_);
    }
    // In the canonical order a scaled input has the bits of its copy, and an average scales none.
    const bool scales = scales_inputs(call.kind, call.type) && !rules_.invariant;
    const bool in_order = must_be_invariant(call);
    const bool on_gpus = where == Where::gpu && !gpu_layouts_.empty();
    const auto plan_of = [&](const Algorithm& algorithm) {
      std::unique_ptr<ReadyPlan>& plan = generated_[{&algorithm, root, scales, in_order, on_gpus}];
      if (!plan) {
        PlanRequest request;
        request.root = root;
        request.scales = scales;
        request.in_order = in_order;
        auto made = ready(algorithm, request,
                          in_order  ? subtrees_
                          : on_gpus ? gpu_layouts_
                                    : layouts_);
        if (collective == Collective::all_to_all_v && algorithm.windows) {
          made->of_short_blocks = &get(call, bytes, Access::none);
        }
        plan = std::move(made);
      }
      return plan.get();
    };
    found = plan_of(*a);
    // Kernels carry elements as they are, which the chooser knows.
    if (where == Where::gpu && widening(found->plan.header, call.type) > 1) {
      found = plan_of(gpu_chooser_.choose(workload_of(call, bytes, access)));
    }
  }
  return *found;
}

const Algorithm* Plans::uneven(Collective collective, Access access) {
  if (collective != Collective::all_to_all_v || access != Access::windows || !windows_ ||
      ranks_ == 1) {
    return nullptr;
  }
  const auto all = algorithms();
  const auto a = std::ranges::find_if(all, [&](const Algorithm& row) {
    return row.collective == collective && row.windows && chooser_.may_run(row);
  });
  return a != all.end() ? &*a : nullptr;
}

std::unique_ptr<ReadyPlan> Plans::ready(const Algorithm& algorithm, PlanRequest request,
                                        std::span<const Domains> layouts) const {
  request.collective = algorithm.collective;
  request.ranks = ranks_;
  auto plan = std::make_unique<ReadyPlan>();
  plan->plan = layouts.size() > 1 && algorithm.follows_order
                   ? tutti::generate(algorithm, request, rank_, layouts)
                   : tutti::generate(algorithm, request, rank_, layouts.front());
  const Use use = use_of(algorithm, request, layouts.front(), hosts_);
  if (use.across || addresses_across(plan->plan, hosts_)) {
    throw Error(ErrorCode::internal,
                fmt::format("the algorithm {} for {} addresses memory of another host",
                            algorithm.name, name(algorithm.collective)));
  }
  plan->path = use.path;
  plan->identity = identity_of(algorithm.name);
  return plan;
}

RankPlan Plans::generate(const Algorithm& algorithm, PlanRequest request) const {
  request.collective = algorithm.collective;
  request.ranks = ranks_;
  return tutti::generate(algorithm, request, rank_, layouts_.front());
}

const ReadyPlan& Plans::point_to_point(int peer, bool sends, bool pulled) {
  std::unique_ptr<ReadyPlan>& plan = point_to_point_[{peer, sends, pulled}];
  if (!plan) {
    PlanHeader header;
    header.collective = Collective::send_recv;
    header.algorithm = sends ? "send" : "recv";
    header.ranks = ranks_;
    RankPlanBuilder b(header, rank_);
    if (pulled) {
      b.lane(0).step({to(peer)}, {});
    } else if (sends) {
      b.lane(0).step({to(peer)}, {in(0)});
    } else {
      b.lane(0).step({out(0)}, {from(peer)});
    }
    plan = std::make_unique<ReadyPlan>();
    plan->plan = b.finish();
    plan->pulled = pulled;
    plan->path = {.windows = pulled, .buffers = pulled, .link_data = !pulled};
    for (Operand& o : plan->plan.operands) {
      if (o.is_link()) o.channel = kMessageChannel;
    }
  }
  return *plan;
}

std::unique_ptr<ReadyPlan> Plans::prove(std::string_view text) const {
  Plan plan = plan_from_text(text);
  const std::string what = "the plan \"" + plan.header.algorithm + "\" for " +
                           std::string(name(plan.header.collective)) + " ";
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, what + why);
  };
  if (plan.header.ranks != ranks_) {
    refuse(fmt::format("is for {} ranks, but the communicator has {}", plan.header.ranks, ranks_));
  }
  std::uint32_t roundings = 0;
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place(plan.header.collective)) continue;
    // For which types is a question of each call: check().
    const Verdict verdict =
        verify(plan, {.in_place = in_place,
                      .invariant = rules_.invariant ? Invariance::float32_up : Invariance::none});
    if (!verdict.proved) {
      throw Error(ErrorCode::unproven_plan, what + "is not proved" + (in_place ? " in place" : "") +
                                                (rules_.invariant ? " to be invariant" : "") +
                                                ", so it does not run: " + verdict.story);
    }
    roundings = std::max(roundings, verdict.roundings);
  }
  if (const std::string why = unfit_to_run(plan); !why.empty()) refuse("cannot run: " + why);
  if (const std::string why = unreachable(plan, hosts_); !why.empty()) {
    refuse("cannot run on these hosts: " + why);
  }
  tighten(plan);
  if (!links_suffice(plan.header, links_)) {
    refuse(fmt::format(
        "needs links of {} slots with {} bytes each, but this communicator's have "
        "{} with {} (TUTTI_SLOTS, TUTTI_SLOT_BYTES)",
        plan.header.slots, least_slot(plan.header), links_.full_slots(), links_.slot_bytes));
  }
  const PlanNeeds needs = needs_of(plan);
  auto ready = std::make_unique<ReadyPlan>();
  ready->path = needs.path;
  ready->channels = needs.channels;
  ready->rounds_once = roundings <= 1;
  ready->unfit_for_gpu = device::unfit(plan.header, needs, device_segment(ranks_));
  ready->identity = identity_of(text);
  ready->plan = std::move(plan.ranks[static_cast<std::size_t>(rank_)]);
  return ready;
}

void Plans::use(std::unique_ptr<ReadyPlan> plan) {
  const PlanHeader& header = plan->plan.header;
  std::unique_ptr<ReadyPlan>& place =
      users_[{header.collective, header.root, header.format == Format::compressed}];
  if (place) replaced_.push_back(std::move(place));
  place = std::move(plan);
}

}  // namespace tutti
