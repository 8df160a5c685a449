// See life_word.h.
#include "transport/host/life_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "core/background.h"
#include "core/error.h"
#include "core/fork.h"

namespace tutti {
namespace {

// No thread has these numbers.
constexpr std::uint32_t kReleased = FUTEX_TID_MASK, kAbsent = FUTEX_TID_MASK - 1;

/// The words of this process. The kernel reads the list when the thread ends, at any moment, so
/// each change is one store.
class Holder {
 public:
  /// False: the word says that the rank is absent.
  bool add(LifeWord& word) {
    const std::lock_guard lock(mutex_);
    begin();
    word.next = head_.first;
    // The kernel marks this one too, where the process ends before the word is in the list.
    std::atomic_ref(head_.pending).store(&word, std::memory_order_release);
    std::uint32_t unborn = 0;
    const bool takes =
        word.word.compare_exchange_strong(unborn, thread_, std::memory_order_acq_rel);
    if (takes) std::atomic_ref(head_.first).store(&word, std::memory_order_release);
    std::atomic_ref(head_.pending).store(nullptr, std::memory_order_release);
    return takes;
  }

  void remove(LifeWord& word) {
    const std::lock_guard lock(mutex_);
    // A word that the kernel finds with another number than the thread's stays as it is.
    word.word.store(kReleased, std::memory_order_release);
    for (LifeWord** at = &head_.first; *at != end(); at = &(*at)->next) {
      if (*at != &word) continue;
      std::atomic_ref(*at).store(word.next, std::memory_order_release);
      return;
    }
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  /// As the kernel knows it (robust_list_head).
  struct Head {
    LifeWord* first;
    long offset = offsetof(LifeWord, word);
    LifeWord* pending = nullptr;
  };
  static_assert(sizeof(Head) == sizeof(robust_list_head));

  /// The head itself, which the kernel takes for one more entry.
  LifeWord* end() { return reinterpret_cast<LifeWord*>(&head_); }

  /// The thread that holds the words, unless it is there. A child by fork() does not have its
  /// parent's, and holds none of its parent's words.
  void begin() {
    if (thread_ != 0 && generation_ == process_generation()) return;
    generation_ = process_generation();
    thread_ = 0;
    head_.first = end();
    struct Start {
      std::mutex mutex;
      std::condition_variable said;
      std::uint32_t thread = 0;
      int error = 0;
    };
    const auto start = std::make_shared<Start>();
    start_thread("tutti-life", [this, start] {
      const bool holds = syscall(SYS_set_robust_list, &head_, sizeof head_) == 0;
      {
        const std::lock_guard lock(start->mutex);
        if (!holds) start->error = errno;
        start->thread = static_cast<std::uint32_t>(gettid());
      }
      start->said.notify_one();
      while (holds) pause();
    }).detach();
    std::unique_lock lock(start->mutex);
    start->said.wait(lock, [&] { return start->thread != 0; });
    if (start->error != 0) {
      throw_system_error("robust futexes, which tell of the end of a process", start->error);
    }
    thread_ = start->thread;
  }

  std::mutex mutex_;
  std::uint32_t generation_ = 0;
  std::uint32_t thread_ = 0;
  Head head_{end()};
};

Holder& holder() {
  static auto* const instance = new Holder;  // never destroyed: its thread goes by it
  return *instance;
}

// When the library is loaded, and so before locks that are held while a word is added: a fork takes
// those first (hold_across_fork()).
[[maybe_unused]] const bool held =
    (hold_across_fork([] { holder().lock(); }, [] { holder().unlock(); }), true);

}  // namespace

LifeWord::State LifeWord::state() const {
  const std::uint32_t value = word.load(std::memory_order_acquire);
  if (value == 0) return State::unborn;
  if ((value & FUTEX_OWNER_DIED) != 0) return State::ended;
  if (value == kAbsent) return State::absent;
  return value == kReleased ? State::left : State::alive;
}

bool LifeWord::shut_out() {
  std::uint32_t unborn = 0;
  return word.compare_exchange_strong(unborn, kAbsent, std::memory_order_acq_rel) ||
         unborn == kAbsent;
}

Life::Life(LifeWord& word, std::shared_ptr<SharedMemory> memory)
    : word_(word),
      memory_(std::move(memory)),
      generation_(process_generation()),
      is_held_(holder().add(word_)) {}

Life::~Life() {
  if (is_held_ && generation_ == process_generation()) holder().remove(word_);
}

}  // namespace tutti
