// How long a call would take: the prediction by which a plan is chosen, for people and schedulers.
#include <cmath>

#include "comm/bind.h"
#include "comm/impl.h"
#include "core/window_memory.h"

namespace tutti {

std::chrono::nanoseconds Communicator::predict(const Call& call) {
  Impl& i = impl();
  i.check_process();
  const Impl::Turn turn(i.turns);
  if (call.collective == Collective::send_recv) {
    throw Error(ErrorCode::invalid_argument,
                "predict() is for collectives: send and recv have no plan");
  }
  check_call(call, rank(), size());
  const BufferSizes sizes = buffer_sizes(call, rank(), size());
  if (moves_nothing(call, sizes)) return std::chrono::nanoseconds(0);
  const auto is_window = [](const void* buffer, std::size_t bytes) {
    return buffer == nullptr || bytes == 0 || find_window(buffer, bytes).id != 0;
  };
  Access access = Access::tmp;
  if (i.group->one_process() || (is_window(call.in, sizes.in) && is_window(call.out, sizes.out))) {
    access = Access::windows;
  } else if (i.group->cma_everywhere()) {
    access = Access::copies;
  }
  const double ns = i.plans.predict(signature_of(call), sizes.largest, access);
  return std::chrono::nanoseconds(std::llround(ns));
}

}  // namespace tutti
