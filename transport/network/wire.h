// A wire carries the messages of all links between a rank of this host and one of another, over an
// endpoint (endpoint.h) of any network. Links and executors see rings (remote_link.h). The wire
// opens and numbers links, lets them take turns, sends messages and credit, brings arriving
// messages to their places, and sees to it that a link that ends has ended at both sides.
//
// Nothing here waits. Three kinds of threads drive a wire: a thread in a call that waits for
// something that the wire brings (poll()), threads that publish or free (send(), credit()), and,
// when no thread is in a call, the reactor's thread (remote_rank.h). So any thread may call any of
// it; a wire has a lock.
//
//   - A link is opened with a control message that says its name and shape. Where the network keeps
//     no order, or writes into the peer's memory, the sender waits for the answer.
//   - A message goes from its slot, or from where it lies in users' memory (a zero-copy send), to
//     the same slot at the peer, or to where the receiver has posted a receive. A two-sided
//     endpoint asks for the place when the header comes. With a one-sided endpoint the sender knows
//     the place: the receiver tells it in time what it has posted, and withdraws that by a control
//     message that the sender answers.
//   - Credit goes along with messages. When much is owed, or nothing else is to be sent and the
//     sender may lack it, it goes by itself.
//   - A rank that leaves a communicator says so after its last message there. The peer hears it
//     when all that was sent before has come, in whatever order that comes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/as_error.h"
#include "transport/network/endpoint.h"
#include "transport/network/remote_link.h"

namespace tutti {

class Wire final : Endpoint::Sink {
 public:
  /// A wire tells it of everything that is no message.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The peer sends nothing more in `communicator`; all that it had sent has come.
    virtual void on_left(std::uint64_t communicator) = 0;
    /// Nothing more will come or go; `why` is empty where the peer has closed it. `refused_here`:
    /// because the system refuses this process what the wire needs. Called with the wire's lock
    /// held.
    virtual void on_closed(const std::string& why, bool refused_here) = 0;
    /// A thread polls after set_listening(true).
    virtual void on_polled() = 0;
    /// Something has come, or what was left to be sent has gone. Called with or without locks.
    virtual void on_moved() {}
  };

  using MakeEndpoint = std::function<std::unique_ptr<Endpoint>(Endpoint::Sink&)>;
  /// `lock`: shared with others (EndpointMaker::lock()); null: a lock of its own.
  Wire(Owner& owner, const MakeEndpoint& make, std::mutex* lock = nullptr);
  ~Wire() override;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  const Endpoint::Abilities& abilities() const { return endpoint_->abilities(); }
  /// As the endpoint's. Without the lock, which the owner may hold.
  std::string carrier() const;
  std::array<int, 2> descriptors() const { return endpoint_->descriptors(); }

  // How it comes about: over TCP connections of its own, after which it may send; or over what the
  // two endpoints say of themselves on the control stream.
  void attach(Stream first, Stream second, bool sends_on_second);
  /// False: the wire is closed.
  bool add_stripe(Stream stripe);
  std::vector<std::byte> address();
  void connect(std::span<const std::byte> address);
  /// The peer has connected, too.
  void start();
  /// The peer's process has ended: it takes and brings nothing more, but for what is on its way.
  void peer_ended() { peer_ended_.store(true, std::memory_order_release); }
  /// Sends a good-bye, the last message.
  void say_bye();
  /// Whether the peer has all that was sent, as far as can be told, or never will.
  bool is_delivered();
  /// Nothing is sent or received any more. Messages that are left are dropped.
  void shut();

  /// Whether more will be sent when its descriptor `which` has room.
  bool wants_room(std::size_t which);
  /// False: something has come already.
  bool arm();

  /// Memory for a link's ring, as the network wants it.
  std::shared_ptr<RingMemory> make_ring(std::size_t bytes);
  /// Whether links may send from users' memory, and post receives there.
  bool is_direct() const { return abilities().least_direct != SIZE_MAX; }
  /// Whether is_direct() holds for this memory, and for messages of this length.
  bool reaches(const std::byte* memory, std::size_t bytes);

  /// As Endpoint::register_device().
  std::shared_ptr<MemoryRegion> register_device(const DeviceMemory& memory) {
    return endpoint_->register_device(memory);
  }

  /// The ends of links; they stay where they are until close(). `owner` is the doorbell of the rank
  /// here. Both ends of a link are made with the same shape: throws Error(mismatch) where they are
  /// not.
  OutLink& out(const LinkName& name, const ConnectionShape& shape, Doorbell& owner);
  InLink& in(const LinkName& name, const ConnectionShape& shape, Doorbell& owner);
  /// A link from which `taker` takes what comes until stop_taking(), on a thread of the wire.
  InLink& in(const LinkName& name, const ConnectionShape& shape, InLink::Taker& taker);
  void stop_taking(InLink& link);
  /// The peer may write to this memory at any time (OutLink::publish_into()), where the network is
  /// one-sided and reaches it. Both know it by `key`, which is random.
  void expose(std::uint64_t key, std::byte* memory, std::size_t bytes);
  /// Exposes memory of a GPU (register_device()) as long as the links of `communicator`; it is held
  /// until the peer writes there no more. `region` null: the peer hears that nothing is exposed as
  /// `key`.
  void expose(std::uint64_t communicator, std::uint64_t key, const DeviceMemory& memory,
              std::shared_ptr<MemoryRegion> region);
  /// Whether the peer exposes memory as `key`; empty: it has not said so far.
  std::optional<bool> peer_exposes(std::uint64_t key);
  /// The peer hears that it may not write there any more. hide() follows.
  void begin_to_hide(std::uint64_t key);
  /// Ends what begin_to_hide() began: when this returns, nothing writes there.
  void hide(std::uint64_t key);

  /// Bytes that the rings of a communicator's links take.
  std::size_t ring_bytes(std::uint64_t communicator);
  /// Gives back what they can spare, beside messages that are there or on their way.
  void release_rings(std::uint64_t communicator);
  /// The links of a communicator end; what they had to send is sent, or never will be. The peer
  /// hears that this rank has left it.
  void close(std::uint64_t communicator);
  /// Says once more, or for the first time, that this rank has left a communicator; after all that
  /// it had sent there.
  void say_left(std::uint64_t communicator);
  /// The peer has said so again, of a communicator that this rank has left, too.
  void forget_left(std::uint64_t communicator);

  /// `link` has published: what can be sent is sent, the rest later.
  void send(OutLink& link);
  /// `link`'s receiver has freed: its sender is told, if not at once then with what is sent next.
  void credit(InLink& link);
  /// Takes in what has come, and sends on what was left. Returns at once where another thread does.
  void poll();
  /// poll(), which also tells senders of all that was freed. For threads that have waited long.
  void poll_and_tell();
  /// The reactor's: as poll_and_tell(), and the part of it that sends.
  void drive();
  void send_rest();
  /// Takes in all that is there of a peer that has ended, or much of it.
  void take_last();
  /// `on`: the reactor listens for what comes, because nobody polls.
  void set_listening(bool on) { listening_.store(on, std::memory_order_release); }
  // Of links that send from users' memory and post receives, by the same names. They wait for
  // transfers that the network is in the middle of.
  void take_back(OutLink& link, const std::byte* begin, const std::byte* end);
  void post(InLink& link, std::span<const InLink::PostedReceive> messages);
  void withdraw_receives(InLink& link);
  /// Whether all that was published has left this process, or never will.
  bool is_flushed();

  /// Whether a thread has polled since the last call of this.
  bool was_polled() {
    return polled_.load(std::memory_order_relaxed) &&
           polled_.exchange(false, std::memory_order_relaxed);
  }
  /// Whether something is left to be sent, or to be told: for send_rest() or drive().
  bool has_work() const { return has_work_.load(std::memory_order_acquire); }
  /// With the lock held, by links: something has come over one of them.
  void note_moved() { moved_ = true; }
  /// With the lock held, by links: what came over `link` was freed at once.
  void note_freed(InLink& link);

 private:
  using Heard = Endpoint::Heard;
  // Of a notice; the rest is the link's number.
  static constexpr std::uint32_t kSameAsLast = std::uint32_t{1} << 31;  // tag and length are
  static constexpr std::uint32_t kPosted = std::uint32_t{1} << 30;
  static constexpr std::uint32_t kLinkNumber = kPosted - 1;

  // --- Of the endpoint, with the lock held (wire_receive.cpp) ---
  Target on_header(const MessageHeader& header) override;
  Heard on_message(const MessageHeader& header) override;
  Heard on_notice(std::uint32_t notice) override;
  Heard on_control(const MessageHeader& header, const std::byte* control) override;
  void on_room() override;
  void on_closed(const std::string& why) override;

  struct Found {
    bool known = false;
    InLink* link = nullptr;  // null: closed here
  };
  InLink& find_or_make_in(const LinkName& name, const ConnectionShape& shape);
  Found find_in(std::uint32_t number) const;
  OutLink* find_out(std::uint32_t number) const;
  /// The peer has opened its link `number`. False: that cannot be.
  bool opened(std::uint32_t number, const Control& control);
  bool take_opened(const Control& control);
  bool take_credit(const Credit& credit);
  /// Where the messages of `header` have receives posted, in one piece; null: they have not.
  static std::byte* posted_place(InLink& link, const MessageHeader& header);
  /// Whether the peer has written to our memory only what it may.
  static bool is_in_place(InLink& link, const MessageHeader& header);
  Heard has_come(const MessageHeader& header, InLink* link);
  void note_sequence(std::uint32_t sequence);
  /// What the peer has said before it left, or said good-bye, has come.
  void settle_ends();
  void peer_has_left(std::uint64_t communicator);

  // --- Sending, with the lock held (wire_send.cpp) ---
  void push();
  bool push_controls();
  bool push_messages();
  Endpoint::Room push_message(OutLink& link);
  void push_credits(bool idle);
  /// Messages of `link` that can go with the first of `header`, which lies at `payload`.
  void extend(MessageHeader& header, const OutLink& link, const std::byte* payload) const;
  /// The last of owing_, if there is one that has something to tell; else null.
  InLink* next_owing();
  Control& say(Control::Kind kind, std::uint32_t link);
  /// Zero-copy sends that the network has finished.
  void end_direct_sends();
  bool has_unsent();
  /// Says that this rank has left a communicator. The peer knows none of its links there then.
  void queue_left(std::uint64_t communicator);
  bool needs_answer() const { return abilities().one_sided || !abilities().ordered; }

  // --- The life of links, and of the wire (wire.cpp, wire_memory.cpp) ---
  /// After something was done: updates the state that threads without the lock read. True:
  /// something has moved, and the owner has to hear of it.
  bool settle();
  void note_poll();
  void drive(bool tells);
  /// Looks so often whether something has come, and tells the owner. `lock`: of mutex_.
  void take_in(int looks, bool tells, std::unique_lock<std::mutex> lock);
  /// Until `done`, which is called with the lock held, or the wire is closed.
  template <class Done>
  void wait_until(Done&& done);
  bool has_withdrawn(InLink& link);
  /// Where the peer exposes the place of `message`; the address 0: nowhere.
  RemotePlace exposed_place(const OutLink::Message& message) const;
  /// Whether the peer has ended; then all that was on its way has come.
  bool is_over();
  void close_with(const std::string& why, bool refused_here = false);
  /// After an exception: part of what came or was to go is lost, so nothing more can.
  void close_with(const std::exception& thrown) { close_with(as_error(thrown).what(), true); }

  Owner& owner_;
  std::mutex own_mutex_;
  std::mutex& mutex_;
  std::unique_ptr<Endpoint> endpoint_;
  bool connected_ = false, started_ = false, closed_ = false;
  std::atomic<bool> peer_ended_{false};
  bool drained_ = false;  // what was on its way from a peer that has ended has come
  bool said_bye_ = false, peer_bye_ = false, acknowledged_ = false;

  // Links.
  std::uint32_t last_number_ = 0;
  std::map<LinkName, std::unique_ptr<OutLink>> outs_;
  std::map<LinkName, std::unique_ptr<InLink>> ins_;
  std::unordered_map<std::uint32_t, OutLink*> outs_by_number_;
  struct Numbered {
    InLink* link;  // null: it was closed here
    std::uint64_t communicator;
  };
  std::unordered_map<std::uint32_t, Numbered> ins_by_number_;
  // Communicators that one side has left, and the other has not yet.
  std::set<std::uint64_t> left_, peer_left_;
  /// Rings of links that were closed here, and GPUs' memory that was exposed for them, into which a
  /// one-sided peer may be about to write.
  std::multimap<std::uint64_t, std::shared_ptr<void>> kept_;  // by communicator

  // Sending.
  std::vector<OutLink*> sending_;  // that have published what is not passed
  std::vector<InLink*> owing_;     // that have freed what their senders do not know of
  std::deque<Control> controls_;
  struct DirectSend {
    OutLink* link;         // null: it was closed here
    std::uint64_t number;  // of its last message
    const std::byte* from;
    std::uint64_t bytes;
    std::uint64_t put;                          // the endpoint's number
    std::shared_ptr<const MemoryRegion> keeps;  // OutLink::source()
  };
  std::deque<DirectSend> direct_;
  std::uint32_t sent_ = 0;  // the last sequence number
  struct PeerExposes {
    ExposedPlace there;
    std::uint64_t communicator = 0;  // with whose links it ends; 0: when it is hidden
  };
  std::unordered_map<std::uint64_t, PeerExposes> peer_exposes_;  // by key

  // Receiving.
  std::uint32_t came_ = 0;              // all up to this sequence number have come
  std::set<std::uint32_t> came_early_;  // and these of the later ones
  struct End {
    std::uint64_t communicator;
    std::uint32_t sequence;
    bool bye;
  };
  std::vector<End> ends_;
  std::vector<std::uint64_t> heard_left_;  // the owner has yet to hear of these communicators
  struct Exposed {
    std::shared_ptr<MemoryRegion> region;
    bool hides = false;              // the peer was told
    std::uint64_t communicator = 0;  // with whose links it ends; 0: when it is hidden
  };
  std::unordered_map<std::uint64_t, Exposed> exposed_;  // by key
  std::uint64_t events_ = 0;  // of what the peer did, and of sends that are over

  std::atomic<bool> polled_{false};
  std::atomic<bool> listening_{false};
  std::atomic<bool> has_work_{false};
  bool moved_ = false, unsent_ = false;  // since, and as of, settle()
  bool owes_much_ = false;               // of what is taken as it comes, since drive()
  bool owes_more_ = false;               // whether senders need to know of what they do not
};

}  // namespace tutti
