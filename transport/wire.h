// A wire carries the messages of all links between a rank of this host and one of another. What it
// runs over (TCP, verbs, UCX) is its own business; links and executors see rings (remote_link.h).
//
// Nothing here waits. A wire is driven by whoever is in a call and waits for something that it
// brings (poll()), by those who publish or free (send(), credit()), and, when nobody is, by the
// reactor's thread (remote_rank.h). So all of it may be called from any thread; a wire has a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/frame.h"
#include "transport/remote_link.h"
#include "transport/stream.h"

namespace tutti {

class Wire {
 public:
  /// Whom a wire tells of what is no message.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The peer sends nothing more in communicator `group`; all that it had sent has come.
    virtual void on_left(std::uint64_t group) = 0;
    /// Nothing more will come or go; `why` is empty where the peer has closed it. Called with the
    /// wire's lock held.
    virtual void on_closed(const std::string& why) = 0;
    /// Somebody polls after set_listening(true).
    virtual void on_polled() = 0;
    /// Something has come, or what was left to be sent has gone. Called with or without locks.
    virtual void on_moved() {}
  };

  /// `lock`: shared with others; null: a lock of its own.
  explicit Wire(Owner& owner, std::mutex* lock = nullptr)
      : owner_(owner), mutex_(lock != nullptr ? *lock : own_mutex_) {}
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;

  /// What carries its bytes, for people: "tcp", "verbs (mlx5_0 port 1)", "ucx (sysv, cma)".
  virtual std::string carrier() const = 0;

  // How it comes about: over TCP connections of its own, or over what the peer's wire says of
  // itself on the control stream.
  virtual bool needs_stream() const { return true; }
  /// `apart`, if there is one: for the long messages of one of the two ranks, this one if it
  /// `sends_apart`.
  virtual void attach(Stream /*stream*/, Stream /*apart*/, bool /*sends_apart*/) {}
  virtual std::vector<std::byte> hello() { return {}; }
  virtual void greet(std::span<const std::byte>) {}
  /// The peer has been greeted, too.
  virtual void start() {}
  /// The peer's process has ended: it takes and brings nothing more, but for what is on its way.
  virtual void peer_ended() {}
  /// The last that is sent.
  virtual void say_bye() = 0;
  /// Whether the peer has all that was sent, as far as the wire can tell, or never will.
  virtual bool is_delivered() { return true; }
  /// Whether more will be sent when its connection `which` (0, 1) has room.
  virtual bool waits_for_room(std::size_t /*which*/) { return !is_flushed(); }
  /// Nothing is sent or received any more. Messages that are left are dropped.
  virtual void shut() = 0;

  // Of a wire without a stream:
  /// Readable when something has come after arm(); -1: it has none of its own.
  virtual int descriptor() const { return -1; }
  /// False: something has come already.
  virtual bool arm() { return true; }

  /// Memory for a link's ring, as the device wants it.
  virtual std::shared_ptr<RingMemory> make_ring(std::size_t bytes) {
    return std::make_shared<RingMemory>(bytes);
  }

  /// Whether links may lend memory to send from, and expect messages in other memory than their
  /// rings (remote_link.h);
  virtual bool lends() const { return false; }
  /// where it does, whether in this memory, and messages of this length.
  virtual bool reaches(const std::byte* /*memory*/, std::size_t /*bytes*/) { return true; }

  /// The ends of links; they stay where they are until close(). `owner` is the doorbell of the rank
  /// here. Both ends of a link are made with the same shape: throws Error(mismatch) where they are
  /// not.
  OutLink& out(const LinkName& name, const ConnectionShape& shape, Doorbell& owner);
  InLink& in(const LinkName& name, const ConnectionShape& shape, Doorbell& owner);
  /// The links of a communicator end; what they had to send is sent, or never will be. The peer
  /// hears that this rank has left it.
  void close(std::uint64_t group);

  /// `link` has published: what can be sent is sent, the rest later.
  void send(OutLink& link);
  /// `link`'s receiver has freed: its sender is told, if not at once then with what is sent next.
  void credit(InLink& link);
  /// Takes in what has come, and sends on what was left. Returns at once where another thread does.
  void poll();
  /// The same; also tells senders of all that was freed. For those who have waited for a while.
  void poll_and_tell();
  /// The reactor's: as poll_and_tell(), and the part of it that sends.
  void drive();
  void tend();
  /// The reactor listens for what comes, as nobody polls.
  void set_listening(bool on) { listening_.store(on, std::memory_order_release); }
  // Of links that lend and expect, as they say. What a device is at is waited for.
  void keep(OutLink& link, const std::byte* begin, const std::byte* end);
  void expect(InLink& link, std::span<const InLink::Expected> messages);
  void forget_expected(InLink& link);
  /// Whether all that was published has left this process, or never will.
  bool is_flushed();

  /// Whether somebody has polled since the last time that this was asked.
  bool was_polled() {
    return polled_.load(std::memory_order_relaxed) &&
           polled_.exchange(false, std::memory_order_relaxed);
  }
  /// Whether something is left to be sent, or to be told: for tend() or drive().
  bool is_restless() const { return restless_.load(std::memory_order_acquire); }
  /// With the lock held, by links: something has come over one of them.
  void note_moved() { moved_ = true; }

 protected:
  // All with the lock held.
  /// Sends what can be sent of `sending_`, `owing_` and what the wire itself has to say.
  virtual void push() = 0;
  /// Takes in what has come.
  virtual void take() = 0;
  /// Lets the peer know of a new link.
  virtual void announce(OutLink& link, const Opening& opening) = 0;
  virtual void say_left(std::uint64_t group) = 0;
  virtual bool has_unsent() const = 0;
  /// Whether what was sent has left this process; else it is about to.
  virtual bool has_gone() { return true; }
  /// Link `link` is not used any more, and will be freed.
  virtual void drop(OutLink&) {}
  virtual void drop(InLink&) {}
  /// Of messages of `link` that have been passed, what lies in this memory is copied, as far as it
  /// has not been sent. False: something is being read there; ask again.
  virtual bool keep_passed(OutLink&, const std::byte* /*begin*/, const std::byte* /*end*/) {
    return true;
  }
  /// Messages of `link` have been expected.
  virtual void tell_expected(InLink&, std::span<const InLink::Expected>) {}
  /// What is landing of `link` goes on in its slot. False: it cannot yet; ask again.
  virtual bool stop_landing(InLink&) { return true; }
  /// Neither of the two has come about in time: the wire ends, for this reason.
  virtual void give_up(const std::string& /*why*/) {}
  /// Of a wire that is closed: nothing reads or writes others' memory any more.
  virtual void let_go() {}

  /// The peer has opened its link `number`. False: that cannot be.
  bool opened(std::uint32_t number, const Opening& opening);
  struct Found {
    bool known = false;
    InLink* link = nullptr;  // null: closed here
  };
  Found find_in(std::uint32_t number) const;
  OutLink* find_out(std::uint32_t number) const;

  Owner& owner_;
  std::mutex own_mutex_;
  std::mutex& mutex_;
  bool closed_ = false;
  std::vector<OutLink*> sending_;         // that have published what is not passed
  std::vector<InLink*> owing_;            // that have freed what their senders do not know of
  std::vector<std::uint64_t> peer_left_;  // communicators, of which the owner has yet to hear

  /// After something was done: what others go by who do not have the lock. Whether something has
  /// moved, of which the owner has to hear.
  bool settle();

 private:
  void note_poll();
  void drive(bool tells);
  /// Until `done`, which is called with the lock held, or the wire is closed.
  template <class Done>
  void wait_until(Done&& done);

  std::atomic<bool> polled_{false};
  std::atomic<bool> listening_{false};
  std::atomic<bool> restless_{false};
  bool moved_ = false, unsent_ = false;  // since, and as of, settle()
  std::uint32_t last_number_ = 0;
  std::map<LinkName, std::unique_ptr<OutLink>> outs_;
  std::map<LinkName, std::unique_ptr<InLink>> ins_;
  std::unordered_map<std::uint32_t, OutLink*> outs_by_number_;
  std::unordered_map<std::uint32_t, InLink*> ins_by_number_;
  std::set<std::uint64_t> left_;  // communicators that were closed here
};

}  // namespace tutti
