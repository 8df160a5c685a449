// The plans of a communicator: chosen, generated once, and looked up from then on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "collectives/model/choose.h"
#include "collectives/model/findings.h"
#include "execute/signature.h"

namespace tutti {

struct ReadyPlan {
  RankPlan plan;
  DataPath path;
  bool rounds_once = true;     // each result; of the user's own
  bool pulled = false;         // a send: the receiver copies from the sender's memory
  std::uint64_t identity = 0;  // a hash that all ranks with this plan share
  /// Of all_to_all_v through windows: the plan with lanes that carry short blocks, with equal
  /// numbers.
  const ReadyPlan* of_short_blocks = nullptr;
  // Of a user's plan; 0 for ours, which ask for little:
  std::uint32_t channels = 0;  // links from a rank to another
  std::string unfit_for_gpu;   // why it cannot run on any; "": it can
};

/// What users want of the bits of sums; see Options.
struct SumRules {
  bool round_once = false;
  bool invariant = false;
};

class Plans {
 public:
  /// `gpu_layouts`: of plans on GPUs, a layout for each lane; none: as on cores. `algorithm`: the
  /// user's wish, or "". `windows`: whether the choice may fall on them. `findings`: of the ranks
  /// of this host, which choose alike. `plain`: what they can address of memory in no window.
  Plans(int rank, const Platform& platform, std::vector<Domains> gpu_layouts,
        std::string_view algorithm, bool windows, SumRules rules, Findings& findings,
        Access plain = Access::copies);

  enum class Where { host, gpu };
  /// Throws Error(invalid_usage) if what the user wants to run breaks the rules that the user
  /// wants.
  void check(const Signature& call) const;
  /// The plan for a call of this signature with `bytes` in its largest buffer. Valid for the life
  /// of this object. Throws Error(invalid_usage) where the user's own plan addresses other ranks'
  /// memory and has no access.
  const ReadyPlan& get(const Signature& call, std::size_t bytes, Access access,
                       Where where = Where::host);
  /// How long the algorithm is predicted to take that get() would take, in ns. What the user's own
  /// plan takes is not known: it counts as the fastest.
  double predict(const Signature& call, std::size_t bytes, Access access);
  /// The algorithm that is predicted to be the fastest for these calls on host memory; see
  /// Chooser::choose.
  const Algorithm& choose(const Workload& workload) {
    return chooser_.choose(workload, &findings_);
  }
  /// This rank's part of an algorithm's plan; `request.ranks` is filled in.
  RankPlan generate(const Algorithm& algorithm, PlanRequest request) const;
  /// One message to or from `peer`, on the channel of send and recv.
  const ReadyPlan& point_to_point(int peer, bool sends, bool pulled);
  /// A plan from the user, verified: throws Error(unproven_plan) with the story, and
  /// Error(invalid_argument) where it is proved, but is none that these ranks can run.
  std::unique_ptr<ReadyPlan> prove(std::string_view text) const;
  /// Runs it from now on for its collective (and root).
  void use(std::unique_ptr<ReadyPlan> plan);
  /// The user's plan for such calls; null: there is none. Compressed plans are for
  /// compressed calls.
  const ReadyPlan* users(Collective collective, int root, bool compressed) const {
    const auto found = users_.find({collective, root, compressed});
    return found != users_.end() ? found->second.get() : nullptr;
  }

 private:
  /// As check(), of a call that has to give invariant bits.
  void check_invariance(const Signature& call) const;
  bool must_round_once(const Signature& call) const;
  bool must_be_invariant(const Signature& call) const;
  /// Null: the user did not say, or the call is compressed, which is a wish of its own.
  const Algorithm* wished_for(const Signature& call) const {
    return call.compressed ? nullptr : wished_[static_cast<std::size_t>(call.collective)];
  }
  Workload workload_of(const Signature& call, std::size_t bytes, Access access) const;
  /// Of all_to_all_v no rank knows how much it moves: through windows where that can be, and there
  /// each pair goes by its own block (bind_call). Null: there is nothing to choose so.
  const Algorithm* uneven(Collective collective, Access access);
  /// The part of a chosen algorithm, and what all ranks' parts use.
  std::unique_ptr<ReadyPlan> ready(const Algorithm& algorithm, PlanRequest request,
                                   std::span<const Domains> layouts) const;

  int rank_;
  int ranks_;
  bool windows_;
  ConnectionShape links_;
  SumRules rules_;
  std::array<const Algorithm*, kCollectives> wished_{};  // by collective, where it can run
  std::set<Collective> conflicts_;  // where `algorithm` rounds more than once, but must not
  Domains hosts_;
  std::vector<Domains> layouts_, gpu_layouts_;  // by lane
  std::vector<Domains> subtrees_;               // for invariant bits: the ranks in their own order
  Chooser chooser_, gpu_chooser_;
  Findings& findings_;
  // By root, PlanRequest::scales and in_order, and whether on GPUs that have a layout of their own.
  std::map<std::tuple<const Algorithm*, int, bool, bool, bool>, std::unique_ptr<ReadyPlan>>
      generated_;
  std::map<std::tuple<int, bool, bool>, std::unique_ptr<ReadyPlan>> point_to_point_;
  std::map<std::tuple<Collective, int, bool>, std::unique_ptr<ReadyPlan>> users_;
  std::vector<std::unique_ptr<ReadyPlan>> replaced_;  // a GPU knows plans by their addresses
};

}  // namespace tutti
