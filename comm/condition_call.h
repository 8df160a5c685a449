// A call of a communicator that has done what it can do at once, and waits for a condition. The
// calls of windows (window.h) become such calls. It runs like any other call: on the caller's
// thread, in a group(), or on the engine. It belongs to no series, so it waits for no other call.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "collectives/execute/host/condition.h"
#include "collectives/execute/host/operation.h"
#include "comm/impl.h"

namespace tutti {

struct ConditionCall {
  ConditionCall(Communicator::Impl& impl, std::unique_ptr<Condition> awaited,
                std::chrono::nanoseconds timeout)
      : condition(std::move(awaited)), operation(*impl.group, impl.workspace) {
    binding.condition = condition.get();
    binding.timeout = timeout;
  }
  ConditionCall(const ConditionCall&) = delete;
  ConditionCall& operator=(const ConditionCall&) = delete;

  const Call call;  // none
  const std::unique_ptr<Condition> condition;
  Operation operation;
  Binding binding;
};

}  // namespace tutti
