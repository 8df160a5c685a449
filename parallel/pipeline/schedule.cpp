#include "parallel/pipeline/schedule.h"

#include <fmt/format.h>

#include "parallel/pipeline/costs.h"

namespace tutti::parallel::pipeline {
namespace {

std::string_view words(Work work) {
  switch (work) {
    case Work::forward:
      return "forward";
    case Work::backward:
      return "backward";
    case Work::backward_inputs:
      return "backward of inputs";
    case Work::backward_weights:
      return "backward of weights";
  }
  return "?";
}

}  // namespace

char letter(Work work) {
  const auto i = static_cast<std::size_t>(work);
  return i < 4 ? "FBIW"[i] : '?';
}

std::string to_string(const Action& a) {
  return fmt::format("{}{}{}", a.stage, letter(a.work), a.micro_batch);
}

std::string describe(const Schedule& schedule, ActionId place) {
  const Action& a =
      schedule
          .actions[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.action)];
  return fmt::format("rank {}, action {} ({}: {} of stage {}, micro-batch {})", place.rank,
                     place.action, to_string(a), words(a.work), a.stage, a.micro_batch);
}

double Costs::of(Work work) const {
  switch (work) {
    case Work::forward:
      return forward;
    case Work::backward:
      return backward_inputs + backward_weights;
    case Work::backward_inputs:
      return backward_inputs;
    case Work::backward_weights:
      return backward_weights;
  }
  return 0;
}

}  // namespace tutti::parallel::pipeline
