#include "transport/joining.h"

#include <cstring>

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kAskAgain = 50ms;
constexpr std::int32_t kNobody = -1;  // asks without taking over

struct Word {
  std::uint32_t state = 0;
  std::int32_t by = 0;  // the host that has decided so
};

}  // namespace

// --- This host's word ----------------------------------------------------------------------------

bool Joining::decide(State state, int by, const Failure* failure) {
  std::uint64_t word = here_.load(std::memory_order_acquire);
  do {
    if (state_of(word) >= kDone || promise_of(word) > by) return false;
  } while (!here_.compare_exchange_weak(word, (word & ~std::uint64_t{0xff}) | state,
                                        std::memory_order_acq_rel));
  {
    const std::lock_guard lock(mutex_);
    decided_by_ = by;
    if (failure != nullptr) failure_ = *failure;
  }
  if (failure != nullptr) blocks_.record(*failure);
  blocks_.ring_here();
  return true;
}

void Joining::promise(int host) {
  std::uint64_t word = here_.load(std::memory_order_acquire);
  while (promise_of(word) < host &&
         !here_.compare_exchange_weak(word,
                                      (word & 0xff) | (static_cast<std::uint64_t>(host) + 1) << 8,
                                      std::memory_order_acq_rel)) {
  }
}

bool Joining::give_up(const Failure& failure) {
  std::uint64_t word = here_.load(std::memory_order_acquire);
  do {
    if (state_of(word) != kOpen) return state_of(word) == kFailed;
  } while (!here_.compare_exchange_weak(word, (word & ~std::uint64_t{0xff}) | kFailed,
                                        std::memory_order_acq_rel));
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
  }
  blocks_.record(failure);
  const int first = tree_.lowest();
  if (first != tree_.own()) tree_.tell(first, kGone, to_bytes(failure));
  return true;
}

std::vector<std::byte> Joining::word_bytes() const {
  const std::lock_guard lock(mutex_);
  const Word word{state(), decided_by_};
  std::vector<std::byte> bytes(sizeof word);
  std::memcpy(bytes.data(), &word, sizeof word);
  if (word.state == kFailed && failure_) {
    const auto more = to_bytes(*failure_);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

// --- The usual way -------------------------------------------------------------------------------

void Joining::say_ready(bool cma_works) {
  std::uint64_t word = here_.load(std::memory_order_acquire);
  do {
    if (state_of(word) != kOpen) return;
  } while (!here_.compare_exchange_weak(word, (word & ~std::uint64_t{0xff}) | kSaidReady,
                                        std::memory_order_acq_rel));
  {
    const std::lock_guard lock(mutex_);
    ready_here_ = true;
    cma_works_ = cma_works_ && cma_works;
  }
  check_ready();
}

void Joining::check_ready() {
  bool works = false;
  {
    const std::lock_guard lock(mutex_);
    if (!ready_here_ || is_decided()) return;
    for (const int h : tree_.below()) {
      if (!ready_.contains(h)) return;
    }
    works = cma_works_;
  }
  if (tree_.own() == 0) {
    if (!decide(works ? kDoneCmaWorks : kDone, 0, nullptr)) return;
    for (const int h : tree_.below()) tell_decision(h);
  } else if (const auto up = tree_.above()) {
    const std::uint64_t flag = works ? 1 : 0;
    tree_.tell(*up, kReady, std::as_bytes(std::span(&flag, 1)));
  }
}

void Joining::tell_decision(int host) const {
  if (is_decided()) tree_.tell(host, kDecision, word_bytes());
}

void Joining::tell_connected(int rank) const {
  if (is_decided()) tree_.tell_connected(rank, kDecision, word_bytes());
}

int Joining::missing() const {
  const std::lock_guard lock(mutex_);
  for (const int h : tree_.below()) {
    if (!ready_.contains(h)) return tree_.first_rank(h);
  }
  const auto up = tree_.above();
  return up ? tree_.first_rank(*up) : -1;
}

// --- Somebody is gone ----------------------------------------------------------------------------

void Joining::look(const std::optional<Failure>& seen) {
  if (is_decided()) return;
  const int first = tree_.lowest();
  std::optional<Failure> failure;
  bool ask = false;
  {
    const std::lock_guard lock(mutex_);
    if (seen && !failure_) failure_ = seen;
    failure = failure_;
    const auto now = Clock::now();
    ask = now - asked_ >= kAskAgain && now - since_ >= kAskAgain;
    if (ask) asked_ = now;
  }
  if (first == tree_.own() && failure) {
    if (first == 0) {  // nobody has been told anything yet
      if (!decide(kFailed, 0, &*failure)) return;
      for (const int h : tree_.neighbours()) tell_decision(h);
    } else {
      promise(first);
      if (ask) {
        const std::int32_t own = first;
        for (int h = 0; h < tree_.hosts(); ++h) {
          if (h != own && !tree_.is_gone(h)) {
            tree_.tell(h, kQuestion, std::as_bytes(std::span(&own, 1)));
          }
        }
      }
      take_over(*failure);
    }
    return;
  }
  if (!ask) return;
  if (failure) {
    tree_.tell(first, kGone, to_bytes(*failure));
    return;
  }
  // Asking the hosts for which this one waits shows whether they are there.
  for (const int h : tree_.neighbours()) {
    tree_.tell(h, kQuestion, std::as_bytes(std::span(&kNobody, 1)));
  }
}

void Joining::ask(int rank) const {
  tree_.tell_rank(rank, kQuestion, std::as_bytes(std::span(&kNobody, 1)));
}

bool Joining::has_answered(int host) const {
  const std::lock_guard lock(mutex_);
  return answers_.contains(host);
}

void Joining::object(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_ && !is_decided()) failure_ = failure;
}

void Joining::take_over(const Failure& failure) {
  std::optional<Answer> decided;
  {
    const std::lock_guard lock(mutex_);
    for (int h = 0; h < tree_.hosts(); ++h) {
      if (h == tree_.own()) continue;
      const auto answer = answers_.find(h);
      if (answer == answers_.end()) {
        if (!tree_.is_gone(h)) return;  // it will answer, or be gone
      } else if (answer->second.state >= kDone) {
        decided = answer->second;
      }
    }
  }
  const Failure* const why = !decided ? &failure : decided->failure ? &*decided->failure : nullptr;
  if (!decide(decided ? decided->state : kFailed, tree_.own(), why)) return;
  for (int h = 0; h < tree_.hosts(); ++h) {
    if (h != tree_.own() && !tree_.is_gone(h)) tell_decision(h);
  }
}

bool Joining::on_note(int rank, std::uint32_t type, std::span<const std::byte> bytes) {
  const auto number = [&]<class T>(T value) -> std::optional<T> {
    if (bytes.size() < sizeof value) return std::nullopt;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  const int host = tree_.of(rank);
  switch (type) {
    case kReady: {
      const auto works = number(std::uint64_t{});
      if (!works) return true;
      {
        const std::lock_guard lock(mutex_);
        ready_.insert(host);
        cma_works_ = cma_works_ && *works != 0;
      }
      check_ready();
      return true;
    }
    case kQuestion: {
      const auto by = number(std::int32_t{});
      if (!by || *by >= tree_.hosts()) return true;
      if (*by >= 0) promise(*by);
      if (*by >= 0 || is_decided()) {
        tree_.tell_rank(rank, *by >= 0 ? kAnswer : kDecision, word_bytes());
      }
      return true;
    }
    case kAnswer:
    case kDecision: {
      const auto word = number(Word{});
      if (!word || word->state > kFailed || word->by < 0 || word->by >= tree_.hosts()) return true;
      const auto state = static_cast<State>(word->state);
      std::optional<Failure> failure;
      if (state == kFailed) failure = failure_from(bytes.subspan(sizeof(Word)), tree_.ranks());
      if (state == kFailed && !failure) return true;
      if (type == kDecision) {
        if (state < kDone) return true;
        if (decide(state, word->by, failure ? &*failure : nullptr)) {
          for (const int h : tree_.below()) tell_decision(h);
          return true;
        }
        // This host listens to a later one alone, or is that one. To it, the decision of an earlier
        // host is an answer: a rank that has left gives no other.
      }
      const std::lock_guard lock(mutex_);
      answers_[host] = {state, failure};
      return true;
    }
    case kGone: {
      const auto failure = failure_from(bytes, tree_.ranks());
      if (!failure) return true;
      object(*failure);
      if (is_decided()) tree_.tell_rank(rank, kDecision, word_bytes());
      return true;
    }
    default:
      return false;
  }
}

}  // namespace tutti
