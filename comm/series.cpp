#include "comm/series.h"

#include <utility>

namespace tutti {

SeriesKey SeriesKey::of(const Call& call) {
  if (call.collective != Collective::send_recv) return {};
  return {call.peer, call.sends};
}

Operation& SeriesKey::operation(Communicator::Impl& impl) const {
  if (condition != nullptr) return condition->operation;
  return peer < 0 ? impl.operation : impl.messages(peer, sends).operation;
}

bool Series::start_first() {
  const Binding* const first = next();
  if (first != nullptr) start(*first);
  return first != nullptr;
}

void Series::go_on(const Call& call, const Begun& begun) {
  call_ = &call;
  agreeing_ = begun.agreeing;
  standstill() = begun.standstill;
  run_on(*begun.operation);
}

PreparedCall* Series::look_up() {
  try {
    return &impl_.look_up(*call_);
  } catch (const Error& error) {
    if (impl_.group->liveness().failed()) throw;
    refused(error);
    return nullptr;
  }
}

const Binding* Series::next() {
  if (agreeing_ != nullptr) {
    run_on(impl_.operation);
    return &impl_.bind(*std::exchange(agreeing_, nullptr), *call_);
  }
  while ((call_ = next_call()) != nullptr) {
    impl_.group->liveness().throw_if_failed();
    if (condition_ != nullptr) return &condition_->binding;
    if (const Binding* const again = impl_.bind_if_repeated(*call_)) return again;
    if (call_->collective == Collective::send_recv) {
      return &impl_.bind_message(impl_.messages(call_->peer, call_->sends), *call_);
    }
    PreparedCall* const prepared = look_up();
    if (prepared == nullptr || !impl_.begin(*prepared, *call_)) continue;
    if (impl_.agrees(*prepared)) {
      agreeing_ = prepared;
      run_on(impl_.agreement);
      return &impl_.bind_agreement(*prepared, *call_);
    }
    return &impl_.bind(*prepared, *call_);
  }
  return nullptr;
}

}  // namespace tutti
