// The messages of this rank: lanes to all other ranks of the job, what has come and what waits, and
// the thread that waits, which drives them: messages progress while a thread is in a call that
// waits, or tests. A thread that waits for others outside of the mail says so (Away). What other
// threads begin meanwhile, and leave, a thread of the mail's own drives: the postman.
//
// Short messages are eager: they come with their data, and wait at the receiver. So that they are
// bounded there, a rank sends as a request what would exceed kMostKept, as it does long messages:
// then the data stays at the sender until a receive wants it. On one host the receiver copies it
// from the sender's memory, where the system lets it (cross-memory attach); otherwise the sender
// writes it in parts.
//
// One lock guards all of it (MailLock), and that is the only lock of messages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bindings/mpi/lane.h"
#include "bindings/mpi/matching.h"
#include "bindings/mpi/request.h"
#include "tutti.h"

namespace tutti::mpi {

class Mail {
 public:
  /// Collective over the job's ranks. `several`: threads of this process share the mail.
  Mail(Communicator& job, bool several);
  /// Collective: until all of this rank's messages have gone, and all ranks say so.
  void close();

  class Lock {
   public:
    explicit Lock(Mail& mail) : mail_(mail.several_ ? &mail : nullptr) {
      if (mail_ != nullptr) mail_->mutex_.lock();
    }
    ~Lock() {
      if (mail_ != nullptr) mail_->mutex_.unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Mail* mail_;
  };

  /// A thread of the program is about to wait for others outside of the mail, as long as this
  /// lives.
  class Away {
   public:
    explicit Away(Mail& mail);
    ~Away() {
      if (counted_) mail_.away_.fetch_sub(1, std::memory_order_release);
    }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;
    /// Whether messages were under way when it began.
    bool leaves_messages() const { return leaves_messages_; }
    /// Leaves them to the postman.
    void summon() const {
      const Lock lock(mail_);
      mail_.summon();
    }

   private:
    Mail& mail_;
    const bool counted_;
    bool leaves_messages_ = false;
  };

  /// Starts a send, or a receive: it may be over at once. With the lock.
  void start_send(Request& send);
  void start_receive(Request& receive);
  /// The receive of a message that was taken out by a matched probe. With the lock.
  void start_matched(Request& receive, std::unique_ptr<Arrived> message);
  /// Takes a receive back that nothing has matched. With the lock.
  bool cancel(Request& receive);
  Matching& matching() { return matching_; }

  /// What a rank of the job answers to a question; set with the lock.
  struct Answer {
    bool is_here = false;
    std::vector<std::byte> data;
  };
  /// Asks another rank. At most kMostPayload bytes, as the answer. With the lock.
  std::shared_ptr<Answer> ask(int rank, std::vector<std::byte> question);
  /// Appends the answer to what rank `from` asks. False: not yet, so that it is asked again later
  /// (`again`). Called with the lock.
  using Answering = bool (*)(int from, std::span<const std::byte> question, bool again,
                             std::vector<std::byte>& answer);
  /// From now on others may ask this rank, also while it is in no call, until end_answers() was
  /// called as often. With the lock.
  void begin_answers(Answering answering);
  void end_answers();

  /// Moves what can be moved, without waiting. With the lock. Whether anything moved.
  bool progress();
  /// Drives the mail until `done()`, which is called with the lock. Throws where a rank is lost.
  template <class Done>
  void wait(const char* what, Done&& done) {
    Pace pace;
    wait(what, done, pace);
  }
  /// The same, until the request of a blocking call is over. A short message that waits for room
  /// alone is over, too, when that takes long: the mail keeps its data, so that the program may go
  /// on to what its receiver waits for.
  void wait_for(Request& request);
  /// Whether a send, a receive or a record of this rank is under way, or others may ask it: then it
  /// has to be driven.
  bool is_busy() const {
    return busy_ + waiting_ + matching_.waiting() + answers_ + asked_.size() > 0;
  }
  /// Wakes the thread that waits: from any thread.
  void ring();
  /// A thread of the library's own works for a request: close() waits until it says its end, which
  /// wakes the thread that waits.
  void task_begins() { tasks_.fetch_add(1, std::memory_order_relaxed); }
  void task_ends() {
    ring();
    tasks_.fetch_sub(1, std::memory_order_release);
  }
  /// Wakes a rank of this host, by its number in the job, that may wait for what this one has done.
  void wake(int rank) { peers_[static_cast<std::size_t>(rank)]->lane.wake(); }

  int rank() const { return rank_; }
  bool crowded() const { return crowded_; }
  Communicator& communicator() { return comm_; }

 private:
  struct Out {  // a record that waits for room
    Header header{};
    Rendezvous rendezvous{};
    bool has_rendezvous = false;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    Request* send = nullptr;                                // an eager one, over when it is written
    std::shared_ptr<const std::vector<std::byte>> keeps{};  // the data, where nobody else does
  };
  struct Peer {
    explicit Peer(Window& window, WindowShape shape, int own, int peer)
        : lane(window, shape, own, peer) {}
    Lane lane;
    std::deque<Out> out;
    std::deque<Request*> streams;  // sends whose data the receiver wants in parts
    bool said_bye = false;
  };

  struct Asked {
    int rank = 0;
    std::shared_ptr<Answer> answer;
  };
  struct Question {  // that has no answer yet
    Peer* from = nullptr;
    std::uint64_t number = 0;
    std::vector<std::byte> text;
  };

  void post(Peer& peer, const Out& out);
  void post_text(Peer& peer, RecordKind kind, std::uint64_t number, std::vector<std::byte> text);
  bool reply(Peer& peer, std::uint64_t number, std::span<const std::byte> question, bool again);
  void arrived_question(Peer& peer, const Header& header);
  void arrived_answer(const Peer& peer, const Header& header);
  void post(Peer& peer, RecordKind kind, const Rendezvous& rendezvous, const Envelope& of = {});
  bool flush(Peer& peer);
  bool drain(Peer& peer);
  void handle(Peer& peer, const Header& header);
  void arrived_eager(Peer& peer, const Header& header);
  void arrived_request(Peer& peer, const Header& header);
  void stream(Peer& peer, const Rendezvous& wanted);
  void arrived_part(Peer& peer, const Header& header);
  void to_own(Request& send, const Envelope& envelope);
  void note_message(Request& receive, const Envelope& envelope, std::uint64_t bytes);
  void take_data(Request& receive, const Envelope& envelope, const std::byte* data,
                 std::size_t bytes);
  void begin_transfer(Request& receive, const Envelope& envelope, Peer& peer,
                      const Rendezvous& rendezvous);
  bool copy_from(Peer& peer, Request& receive, const Rendezvous& rendezvous);
  void end_transfer(Request& receive);
  void finish(Request& request);
  void keep_data(Request& send, bool is_long);
  std::uint64_t number(Request& request);
  /// The send to `from`, or the receive from there, that a record of that rank names by number.
  /// Throws where there is none under way.
  Request& known(std::uint64_t number, RequestKind kind, const Peer& from);
  /// The same, of a send whose data nobody has asked for yet.
  Request& known_send(std::uint64_t number, const Peer& from);
  void forget(std::uint64_t number);

  /// Wakes the postman, where he is needed. With the lock.
  void summon();
  void deliver();
  bool needs_postman() const {
    return answers_ > 0 || (away_.load(std::memory_order_acquire) > 0 && is_busy());
  }

  /// One pass of a wait that has brought nothing: spins, gives the core away, sleeps.
  struct Pace {
    bool patient = false;  // sleeps at once, and has no deadline
    int looks = 0;
    std::chrono::steady_clock::time_point next_look{};
    std::chrono::steady_clock::time_point end{};
  };
  void rest(Pace& pace, const char* what);
  template <class Done>
  void wait(const char* what, Done& done, Pace& pace);
  void sleep_until_rung();
  Front& front() { return *reinterpret_cast<Front*>(window_.data()); }

  Communicator comm_;  // of its own: what waits there does not disturb the collectives
  bool several_;       // threads of this process use it
  const int rank_, size_;
  WindowShape shape_;
  Window window_;
  // The last owner of an object may be a message that ends: what is destroyed then takes it, too.
  std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> all_;  // without this rank
  Matching matching_;
  std::unordered_map<std::uint64_t, Request*> numbers_;
  std::uint64_t last_number_ = 0;
  std::size_t busy_ = 0;     // sends that are not over, receives whose data is coming
  std::size_t waiting_ = 0;  // records and parts that wait for room
  std::unordered_map<std::uint64_t, Asked> asked_;
  std::deque<Question> questions_;
  std::size_t answers_ = 0;  // windows whose members may ask this rank
  Answering answering_ = nullptr;
  std::atomic<int> tasks_{0};
  std::atomic<int> away_{0};  // threads
  std::thread postman_;
  std::condition_variable_any summons_;
  bool closing_ = false;
  bool crowded_ = false;
  bool far_ = false;  // there are other hosts
  bool light_ = false;
  int spins_ = 0;
  std::chrono::nanoseconds timeout_{0};
};

template <class Done>
void Mail::wait(const char* what, Done& done, Pace& pace) {
  for (;;) {
    {
      const Lock lock(*this);
      if (done()) return;
      if (progress()) {
        pace.looks = 0;
        if (done()) return;
        continue;
      }
    }
    rest(pace, what);
  }
}

}  // namespace tutti::mpi
