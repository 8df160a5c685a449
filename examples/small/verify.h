// 4. The proof: a plan is right before it runs, whatever the timing.
//
// verify() runs the plan once, with words in place of numbers: chunk 0 of rank 1's input is the
// word "in[0]@1", and a step that adds two of them writes "(in[0]@1 + in[0]@2)". At the end each
// output must be a sum in which every rank stands once.
//
// Why is one run enough, when ranks are fast or slow in a million ways? Because ranks meet only in
// links. A link is a queue with one sender and one receiver, and a rank can't ask whether a message
// is there; it can only wait for it. So the k-th message of a link is the same in every run, only
// sooner or later. (Networks of this kind are Kahn's, 1974.) For the same reason a run that stops
// before its end stops in every timing: that is a deadlock, and none is found later by bad luck.
//
// What it proves:
//   form      chunks and ranks exist, `in` isn't written, nothing is read before it is written, and
//   the
//             two ends of a link take each message for the same piece of a block, so for the same
//             bytes
//   end       every rank comes to its last step, with the slots that the plan declares, and no
//   message is
//             left over. So the steps may be repeated: run.h cuts long buffers into tiles
//   result    every output has the right sum, and `<=` stands where it becomes complete
//   bits      ranks that have the same result have computed it in the same order, so that rounding
//   can't
//             make them differ
//
// In the library: collectives/verify.h and verify/. There a rank has several lanes and reaches
// other ranks' memory, so it also proves that there is no data race (vector clocks, clocks.h), and
// that calls in place work. It keeps numbers in place of words, and so proves 33 million steps in
// seconds.
#pragma once

#include <stdexcept>

#include "plan.h"

namespace small {

/// The plan is wrong; what() says how.
class Refuted : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A plan that has a proof. Nothing else makes one, so a function that takes a Proved needs no
/// checks.
class Proved {
 public:
  const Plan& operator*() const { return plan_; }
  const Plan* operator->() const { return &plan_; }

 private:
  friend Proved verify(Plan plan);
  explicit Proved(Plan plan) : plan_(std::move(plan)) {}
  Plan plan_;
};

/// Proves the plan, or throws Refuted.
Proved verify(Plan plan);

}  // namespace small
