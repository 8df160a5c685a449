// A pipeline schedule as data. A model is cut into stages, a batch into micro-batches; a schedule
// says which rank has which stage, and in which order a rank runs its actions. It has no pointers,
// no byte sizes and no times. So the same schedule can be proved (verify.h), simulated
// (simulate.h), drawn (draw.h), written and read (text.h), and executed (execute.h).
//
// An action is the work of one stage on one micro-batch:
//
//     2F5   forward of stage 2, micro-batch 5
//     2B5   its backward; or, in two parts, so that others wait for the first part only:
//     2I5     the backward of inputs: the gradient that stage 1 waits for
//     2W5     the backward of weights, at any time after that
//
// Messages are not actions: they follow from actions. A forward takes the message of the stage
// before and sends its result to the stage after; B or I take a gradient from the stage after and
// send one to the stage before. A message is sent as soon as its action has ended, and received as
// soon as there is room for it, while the rank runs other actions. So a rank never waits in a send
// for another rank that waits in a send. The order of messages cannot be wrong, as it is the order
// of the actions.
//
// Links. There is one from each stage to the next, for activations, and one back, for gradients; a
// link is first-in first-out: the k-th message that goes in is the k-th that is taken out. It has
// `buffers` buffers at each end. One at the sender is taken when the action that fills it begins,
// and free when the message is across; one at the receiver is taken when the message may come, and
// free when the action that reads it has ended. (Between two stages of one rank there is nothing to
// send, and one set of buffers.) All messages from a rank to another, over any link, arrive in the
// order of sending: a message without room holds up the messages behind it. With these rules, and
// exactly these buffers, a schedule is proved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::parallel::pipeline {

constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

enum class Work : std::uint8_t { forward, backward, backward_inputs, backward_weights };

struct Action {
  Work work = Work::forward;
  int stage = 0;
  int micro_batch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

struct Schedule {
  std::string name;  // one word: "1f1b"
  int micro_batches = 1;
  int buffers = 1;  // at each end of a link
  // The most activations that a rank keeps at a time. An activation lives from the beginning of its
  // forward to the end of its backward, of both parts.
  int live = 1;
  std::vector<int> placement;                // by stage: its rank
  std::vector<std::vector<Action>> actions;  // by rank

  int ranks() const { return static_cast<int>(actions.size()); }
  int stages() const { return static_cast<int>(placement.size()); }
  int rank_of(int stage) const { return placement[static_cast<std::size_t>(stage)]; }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// An action by its place.
struct ActionId {
  int rank = -1;
  int action = -1;
  bool is_none() const { return rank < 0; }
  friend bool operator==(const ActionId&, const ActionId&) = default;
};

/// 'F', 'B', 'I' or 'W'.
char letter(Work work);
/// "2F5".
std::string to_string(const Action& action);
/// "rank 1, action 3 (2F5: forward of stage 2, micro-batch 5)".
std::string describe(const Schedule& schedule, ActionId action);

inline bool takes_gradient(Work w) { return w == Work::backward || w == Work::backward_inputs; }
inline bool ends_backward(Work w) { return w == Work::backward || w == Work::backward_weights; }

}  // namespace tutti::parallel::pipeline
