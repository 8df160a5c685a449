#include "ledger.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace tutti::pytorch {
namespace {

constexpr std::chrono::microseconds kPause(200);  // between two looks at the works

template <class Hooks, class... Arguments>
void run_all(const Hooks& hooks, Arguments... arguments) {
  if (!hooks) return;
  for (const auto& [id, hook] : *hooks) {
    try {
      hook(arguments...);
    } catch (const std::exception& e) {
      TORCH_WARN("tutti: a hook of the process group has failed: ", e.what());
    }
  }
}

}  // namespace

std::atomic<std::uint64_t>& Ledger::numbers() {
  static std::atomic<std::uint64_t> next{1};
  return next;
}

template <class Hook>
Ledger::Table<Hook> Ledger::copy(const Table<Hook>& table) const {
  const std::lock_guard lock(mutex_);
  return table;
}

template <class Hook>
void Ledger::set(Table<Hook>& table, std::int64_t id, Hook hook) {
  Table<Hook> before;  // its hooks go without the lock
  const std::lock_guard lock(mutex_);
  auto changed = std::make_shared<std::map<std::int64_t, Hook>>();
  if (table) *changed = *table;
  if (hook) {
    (*changed)[id] = std::move(hook);
  } else {
    changed->erase(id);
  }
  if (changed->empty()) changed.reset();
  before = std::exchange(table, std::move(changed));
}

void Ledger::set_abort_hook(std::int64_t id, AbortHook hook) {
  set(abort_hooks_, id, std::move(hook));
}

void Ledger::set_completion_hook(std::int64_t id, CompletionHook hook) {
  set(completion_hooks_, id, std::move(hook));
  watched_.store(copy(completion_hooks_) != nullptr, std::memory_order_release);
}

void Ledger::set_work_hook(WorkHook hook) {
  work_hook_ = std::move(hook);
  has_work_hook_.store(true, std::memory_order_release);
}

void Ledger::tell_work_hook(std::shared_ptr<::c10d::WorkInfo> info) {
  untold_.fetch_add(1, std::memory_order_relaxed);
  telling_.run([self = shared_from_this(), info = std::move(info)] {
    try {
      self->work_hook_(info);
    } catch (const std::exception& e) {
      TORCH_WARN("tutti: a hook of the process group has failed: ", e.what());
    }
    self->untold_.fetch_sub(1, std::memory_order_release);
  });
}

void Ledger::wait_until_told(const std::function<void()>& meanwhile) const {
  constexpr std::chrono::milliseconds kMoment(50);
  while (!wait_until_over(kMoment)) meanwhile();
  while (untold_.load(std::memory_order_acquire) > 0) {
    meanwhile();
    std::this_thread::sleep_for(kPause);
  }
}

void Ledger::run_abort_hooks() const { run_all(copy(abort_hooks_)); }

bool Ledger::is_failure(const Error& error, int rank) {
  if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::invalid_usage) {
    return false;
  }
  return error.code() != ErrorCode::aborted || (error.rank() >= 0 && error.rank() != rank);
}

void Ledger::failed(std::function<void()> then) {
  if (!copy(abort_hooks_)) return then();
  // `then` keeps the work, and so the ledger.
  failing_.run([this, then = std::move(then)] {
    if (!told_.exchange(true)) run_abort_hooks();
    then();
  });
}

void Ledger::extend(std::chrono::milliseconds more) {
  const std::lock_guard lock(mutex_);
  extensions_.push_back({numbers().load(), more});
  extended_.store(true, std::memory_order_release);
}

std::chrono::milliseconds Ledger::extension() const {
  std::chrono::milliseconds sum(0);
  if (!is_extended()) return sum;
  const std::lock_guard lock(mutex_);
  for (const Extension& e : extensions_) sum += e.more;
  return sum;
}

void Ledger::expire(std::uint64_t number) {
  if (!is_extended()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(extensions_, [&](const Extension& e) { return e.first <= number; });
  extended_.store(!extensions_.empty(), std::memory_order_release);
}

void Ledger::over(std::uint64_t number) {
  expire(number);
  under_way_.fetch_sub(1, std::memory_order_release);
}

void Ledger::succeeded(std::uint64_t number, std::optional<float> took) const {
  if (is_watched()) run_all(copy(completion_hooks_), number, took);
}

bool Ledger::wait_until_over(std::chrono::milliseconds longest) const {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (under_way_.load(std::memory_order_acquire) > 0) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace tutti::pytorch
