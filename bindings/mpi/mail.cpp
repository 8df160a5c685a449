#include "bindings/mpi/mail.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "comm/impl.h"
#include "core/asymmetric_fence.h"
#include "core/error.h"

namespace tutti::mpi {
namespace {

// Bytes of eager messages of one sender that may wait at a receiver.
constexpr std::uint64_t kMostKept = std::uint64_t{4} << 20;
constexpr int kRecordsAtOnce = 64;
constexpr int kYields = 30;
constexpr auto kLookEvery = std::chrono::milliseconds(50);
// So long the postman waits when he is summoned: most messages are over then, by those who began
// them.
constexpr auto kMoment = std::chrono::milliseconds(1);

const std::uint64_t kProbe = 0x7a11'0f7e'57ed'0001;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::span<const std::byte> bytes_of(const Rendezvous& r) { return std::as_bytes(std::span(&r, 1)); }

Rendezvous rendezvous_in(std::span<const std::byte> payload) {
  Rendezvous r;
  if (payload.size() < sizeof r) {
    throw Error(ErrorCode::internal, "the record of a message is shorter than it says");
  }
  std::memcpy(&r, payload.data(), sizeof r);
  return r;
}

[[noreturn]] void throw_unknown(int peer) {
  throw Error(ErrorCode::internal, "a record names a message that is not under way", peer);
}

Envelope envelope_of(const Header& h) { return {h.context, h.source, h.tag}; }

}  // namespace

Mail::Mail(Communicator& job, bool several)
    : comm_(job.split(0, job.rank())),
      several_(several),
      rank_(comm_.rank()),
      size_(comm_.size()),
      shape_(WindowShape::of(size_)),
      window_(comm_.window(shape_.bytes())) {
  const auto& impl = comm_.impl();
  crowded_ = impl.policy.crowded;
  spins_ = crowded_ ? 40 : 4000;
  timeout_ = impl.options.timeout;
  light_ = join_heavy_fences();
  front().pid = getpid();
  front().light = light_ ? 1 : 0;
  front().probe = reinterpret_cast<std::uint64_t>(&kProbe);
  front().probed = kProbe;
  comm_.barrier();
  peers_.resize(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    auto& peer = peers_[static_cast<std::size_t>(r)];
    peer = std::make_unique<Peer>(window_, shape_, rank_, r);
    all_.push_back(peer.get());
    peer->lane.meet(impl.group->cma_everywhere(), light_, [this] { ring(); });
    far_ = far_ || !peer->lane.is_near();
  }
  several_ = several_ || far_;  // the postman answers for windows
  comm_.barrier();
}

Mail::Away::Away(Mail& mail) : mail_(mail), counted_(mail.several_) {
  // Counted first: whoever begins a message after the lock was held here sees it.
  if (counted_) mail.away_.fetch_add(1, std::memory_order_relaxed);
  const Lock lock(mail);
  leaves_messages_ = mail.is_busy();
}

void Mail::summon() {
  if (!several_ || closing_ || !needs_postman()) return;
  if (!postman_.joinable()) postman_ = std::thread([this] { deliver(); });
  summons_.notify_one();
}

void Mail::deliver() {
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return closing_ || !needs_postman(); };
  for (;;) {
    summons_.wait(lock, [this] { return closing_ || needs_postman(); });
    if (closing_) return;
    if (answers_ == 0 && summons_.wait_for(lock, kMoment, is_done)) continue;
    lock.unlock();
    try {
      Pace pace;
      pace.patient = true;
      wait("the postman", is_done, pace);
    } catch (const std::exception&) {
      return;  // a rank is lost: those who wait find that themselves
    }
    lock.lock();
  }
}

void Mail::close() {
  {
    const Lock lock(*this);
    closing_ = true;
    summons_.notify_one();
  }
  ring();
  if (postman_.joinable()) postman_.join();
  wait("MPI_Finalize: this rank's messages",
       [&] { return busy_ == 0 && waiting_ == 0 && tasks_.load(std::memory_order_acquire) == 0; });
  Future all = comm_.start({.collective = Collective::barrier});
  all.on_ready([this] { ring(); });
  wait("MPI_Finalize: the other ranks", [&] { return all.ready(); });
  all.wait();
  if (far_) {
    {
      const Lock lock(*this);
      for (Peer* peer : all_) {
        if (!peer->lane.is_near()) post(*peer, {.header = {.kind = RecordKind::bye}});
      }
    }
    wait("MPI_Finalize: the ranks of other hosts", [&] {
      return waiting_ == 0 && std::ranges::all_of(all_, [](const Peer* p) {
               return p->lane.is_near() || p->said_bye;
             });
    });
  }
  window_.close();
  comm_.destroy();
}

// --- Records -------------------------------------------------------------------------------------

void Mail::post(Peer& peer, const Out& out) {
  if (peer.out.empty()) {
    const auto body = out.has_rendezvous ? bytes_of(out.rendezvous) : std::span<const std::byte>();
    if (peer.lane.write(out.header, body, {out.data, out.bytes})) {
      peer.lane.wake();
      if (out.send != nullptr) finish(*out.send);
      return;
    }
  }
  peer.out.push_back(out);
  ++waiting_;
}

void Mail::post(Peer& peer, RecordKind kind, const Rendezvous& rendezvous, const Envelope& of) {
  Out out;
  out.header.kind = kind;
  out.header.context = of.context;
  out.header.source = of.source;
  out.header.tag = of.tag;
  out.rendezvous = rendezvous;
  out.has_rendezvous = true;
  post(peer, out);
}

bool Mail::flush(Peer& peer) {
  bool moved = false;
  while (!peer.out.empty()) {
    const Out& out = peer.out.front();
    const auto body = out.has_rendezvous ? bytes_of(out.rendezvous) : std::span<const std::byte>();
    if (!peer.lane.write(out.header, body, {out.data, out.bytes})) break;
    moved = true;
    if (out.send != nullptr) finish(*out.send);
    peer.out.pop_front();
    --waiting_;
  }
  while (peer.out.empty() && !peer.streams.empty()) {
    Request& send = *peer.streams.front();
    const std::size_t bytes = std::min(kMostPayload, send.wanted - send.moved);
    const Rendezvous part{send.moved, 0, send.receiver, 0};
    Header header;
    header.kind = RecordKind::data;
    if (!peer.lane.write(header, bytes_of(part), {send.data + send.moved, bytes})) break;
    moved = true;
    send.moved += bytes;
    if (send.moved < send.wanted) continue;
    peer.streams.pop_front();
    --waiting_;
    forget(send.number);
    finish(send);
  }
  if (moved) peer.lane.wake();
  return moved;
}

bool Mail::drain(Peer& peer) {
  for (int n = 0; n < kRecordsAtOnce; ++n) {
    if (peer.said_bye) return n > 0;
    const Header* const header = peer.lane.next();
    if (header == nullptr) return n > 0;
    handle(peer, *header);
    peer.lane.read_on();
  }
  return true;
}

bool Mail::progress() {
  bool moved = false;
  for (Peer* peer : all_) {
    if (peer->lane.has_news()) moved = drain(*peer) || moved;
  }
  for (std::size_t n = questions_.size(); n > 0; --n) {
    const Question question = std::move(questions_.front());
    questions_.pop_front();
    moved = reply(*question.from, question.number, question.text, true) || moved;
  }
  if (waiting_ > 0) {
    for (Peer* peer : all_) moved = flush(*peer) || moved;
  }
  return moved;
}

void Mail::handle(Peer& peer, const Header& header) {
  const auto payload = Lane::payload(header);
  switch (header.kind) {
    case RecordKind::eager:
      return arrived_eager(peer, header);
    case RecordKind::request:
      return arrived_request(peer, header);
    case RecordKind::ready:
      return stream(peer, rendezvous_in(payload));
    case RecordKind::data:
      return arrived_part(peer, header);
    case RecordKind::taken: {
      const std::uint64_t number = rendezvous_in(payload).sender;
      Request& send = known_send(number, peer);
      forget(number);
      return finish(send);
    }
    case RecordKind::question:
      return arrived_question(peer, header);
    case RecordKind::answer:
      return arrived_answer(peer, header);
    case RecordKind::bye:
      peer.said_bye = true;
      return;
    case RecordKind::none:
    case RecordKind::skip:
      break;
  }
  throw Error(ErrorCode::internal, "a record of a message is of no kind", peer.lane.peer());
}

void Mail::arrived_eager(Peer& peer, const Header& header) {
  const auto data = Lane::payload(header);
  const Envelope envelope = envelope_of(header);
  if (Request* const receive = matching_.take_receive(envelope)) {
    ++busy_;
    take_data(*receive, envelope, data.data(), data.size());
    peer.lane.took_eager(data.size());
    return;
  }
  Arrived kept;
  kept.envelope = envelope;
  kept.peer = peer.lane.peer();
  kept.bytes = data.size();
  kept.eager = true;
  if (!data.empty()) {
    kept.data.reset(new std::byte[data.size()]);
    std::memcpy(kept.data.get(), data.data(), data.size());
  }
  matching_.keep(std::move(kept));
}

void Mail::arrived_request(Peer& peer, const Header& header) {
  const Rendezvous rendezvous = rendezvous_in(Lane::payload(header));
  const Envelope envelope = envelope_of(header);
  if (Request* const receive = matching_.take_receive(envelope)) {
    ++busy_;
    begin_transfer(*receive, envelope, peer, rendezvous);
    return;
  }
  Arrived kept;
  kept.envelope = envelope;
  kept.peer = peer.lane.peer();
  kept.bytes = rendezvous.bytes;
  kept.rendezvous = rendezvous;
  matching_.keep(std::move(kept));
}

void Mail::stream(Peer& peer, const Rendezvous& wanted) {
  Request& send = known_send(wanted.sender, peer);
  if (wanted.receiver == 0) throw_unknown(peer.lane.peer());
  send.wanted = std::min<std::size_t>(wanted.bytes, send.bytes);
  send.moved = 0;
  send.receiver = wanted.receiver;
  peer.streams.push_back(&send);
  ++waiting_;
}

void Mail::arrived_part(Peer& peer, const Header& header) {
  const auto payload = Lane::payload(header);
  const Rendezvous part = rendezvous_in(payload);
  const auto data = payload.subspan(sizeof part);
  Request& receive = known(part.receiver, RequestKind::receive, peer);
  if (part.bytes != receive.moved || data.size() > receive.wanted - receive.moved) {
    throw Error(ErrorCode::internal, "a part of a message does not fit into it");
  }
  std::memcpy(receive.transfer + receive.moved, data.data(), data.size());
  receive.moved += data.size();
  if (receive.moved < receive.wanted) return;
  forget(part.receiver);
  end_transfer(receive);
}

// --- Questions and answers -----------------------------------------------------------------------

void Mail::post_text(Peer& peer, RecordKind kind, std::uint64_t number,
                     std::vector<std::byte> text) {
  Out out;
  out.header.kind = kind;
  out.rendezvous = {text.size(), number, 0, 0};
  out.has_rendezvous = true;
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(text));
  out.data = kept->data();
  out.bytes = kept->size();
  out.keeps = kept;
  post(peer, out);
}

std::shared_ptr<Mail::Answer> Mail::ask(int rank, std::vector<std::byte> question) {
  auto answer = std::make_shared<Answer>();
  const std::uint64_t number = ++last_number_;
  asked_[number] = {rank, answer};
  post_text(*peers_[static_cast<std::size_t>(rank)], RecordKind::question, number,
            std::move(question));
  return answer;
}

void Mail::arrived_answer(const Peer& peer, const Header& header) {
  const auto payload = Lane::payload(header);
  const auto found = asked_.find(rendezvous_in(payload).sender);
  if (found == asked_.end() || found->second.rank != peer.lane.peer()) {
    throw_unknown(peer.lane.peer());
  }
  const auto data = payload.subspan(sizeof(Rendezvous));
  Answer& answer = *found->second.answer;
  answer.data.assign(data.begin(), data.end());
  answer.is_here = true;
  asked_.erase(found);
}

bool Mail::reply(Peer& peer, std::uint64_t number, std::span<const std::byte> question,
                 bool again) {
  std::vector<std::byte> answer;
  if (answering_ == nullptr) throw_unknown(peer.lane.peer());
  if (answering_(peer.lane.peer(), question, again, answer)) {
    post_text(peer, RecordKind::answer, number, std::move(answer));
    return true;
  }
  questions_.push_back({&peer, number, {question.begin(), question.end()}});
  return false;
}

void Mail::arrived_question(Peer& peer, const Header& header) {
  const auto payload = Lane::payload(header);
  const std::uint64_t number = rendezvous_in(payload).sender;
  reply(peer, number, payload.subspan(sizeof(Rendezvous)), false);
}

void Mail::begin_answers(Answering answering) {
  answering_ = answering;
  ++answers_;
  summon();
}

void Mail::end_answers() { --answers_; }

// --- Sends and receives --------------------------------------------------------------------------

void Mail::start_send(Request& send) {
  ++busy_;
  summon();
  const Envelope envelope{send.context, send.own, send.tag};
  if (send.job_peer == rank_) return to_own(send, envelope);
  Peer& peer = *peers_[static_cast<std::size_t>(send.job_peer)];
  const bool eager = send.mode != SendMode::synchronous && send.bytes <= kMostPayload &&
                     peer.lane.kept_there() + send.bytes <= kMostKept;
  if (!eager) {
    send.receiver = 0;
    send.number = number(send);
    const Rendezvous rendezvous{send.bytes, send.number, 0,
                                reinterpret_cast<std::uint64_t>(send.data)};
    return post(peer, RecordKind::request, rendezvous, envelope);
  }
  peer.lane.sent_eager(send.bytes);
  Out out;
  out.header.kind = RecordKind::eager;
  out.header.context = envelope.context;
  out.header.source = envelope.source;
  out.header.tag = envelope.tag;
  out.data = send.data;
  out.bytes = send.bytes;
  out.send = &send;
  post(peer, out);
}

void Mail::to_own(Request& send, const Envelope& envelope) {
  if (Request* const receive = matching_.take_receive(envelope)) {
    ++busy_;
    take_data(*receive, envelope, send.data, send.bytes);
    return finish(send);
  }
  Arrived kept;
  kept.envelope = envelope;
  kept.peer = rank_;
  kept.bytes = send.bytes;
  if (send.mode == SendMode::synchronous || send.bytes > kMostPayload) {
    kept.own = &send;
    return matching_.keep(std::move(kept));
  }
  kept.eager = true;
  kept.data.reset(new std::byte[send.bytes]);
  if (send.bytes > 0) std::memcpy(kept.data.get(), send.data, send.bytes);
  matching_.keep(std::move(kept));
  finish(send);
}

void Mail::start_receive(Request& receive) {
  if (std::unique_ptr<Arrived> m = matching_.take(receive.context, receive.peer, receive.tag)) {
    return start_matched(receive, std::move(m));
  }
  matching_.post(receive);
  summon();
}

void Mail::start_matched(Request& receive, std::unique_ptr<Arrived> message) {
  ++busy_;
  summon();
  const Envelope& envelope = message->envelope;
  if (message->own != nullptr) {
    take_data(receive, envelope, message->own->data, message->own->bytes);
    return finish(*message->own);
  }
  if (message->eager) {
    take_data(receive, envelope, message->data.get(), message->bytes);
    if (message->peer == rank_) return;
    Lane& lane = peers_[static_cast<std::size_t>(message->peer)]->lane;
    lane.took_eager(message->bytes);
    return lane.tell_credit(false);
  }
  begin_transfer(receive, envelope, *peers_[static_cast<std::size_t>(message->peer)],
                 message->rendezvous);
}

bool Mail::cancel(Request& receive) {
  if (receive.over || !matching_.withdraw(receive)) return false;
  ++busy_;
  receive.outcome.cancelled = true;
  finish(receive);
  return true;
}

void Mail::note_message(Request& receive, const Envelope& envelope, std::uint64_t bytes) {
  receive.outcome.source = envelope.source;
  receive.outcome.tag = envelope.tag;
  receive.outcome.bytes = std::min<std::uint64_t>(bytes, receive.bytes);
  if (bytes <= receive.bytes) return;
  receive.fail(MPI_ERR_TRUNCATE,
               "the message from rank " + std::to_string(envelope.source) + " with tag " +
                   std::to_string(envelope.tag) + " has " + std::to_string(bytes) +
                   " bytes, but the receive has room for " + std::to_string(receive.bytes));
}

void Mail::take_data(Request& receive, const Envelope& envelope, const std::byte* data,
                     std::size_t bytes) {
  note_message(receive, envelope, bytes);
  const std::size_t taken = std::min(bytes, receive.bytes);
  if (taken > 0 && receive.data == nullptr) {
    receive.buffer.unpack(data, taken);
  } else if (taken > 0) {
    std::memcpy(receive.data, data, taken);
  }
  finish(receive);
}

void Mail::begin_transfer(Request& receive, const Envelope& envelope, Peer& peer,
                          const Rendezvous& rendezvous) {
  note_message(receive, envelope, rendezvous.bytes);
  receive.wanted = std::min<std::size_t>(rendezvous.bytes, receive.bytes);
  receive.moved = 0;
  receive.transfer = receive.data;
  if (receive.data == nullptr) {
    receive.packed.resize(receive.wanted);
    receive.transfer = receive.packed.data();
  }
  if (receive.wanted == 0 || copy_from(peer, receive, rendezvous)) {
    post(peer, RecordKind::taken, {0, rendezvous.sender, 0, 0});
    return end_transfer(receive);
  }
  receive.job_peer = peer.lane.peer();
  receive.number = number(receive);
  post(peer, RecordKind::ready, {receive.wanted, rendezvous.sender, receive.number, 0});
}

bool Mail::copy_from(Peer& peer, Request& receive, const Rendezvous& rendezvous) {
  if (!peer.lane.may_copy()) return false;
  std::size_t done = 0;
  while (done < receive.wanted) {
    const iovec local{receive.transfer + done, receive.wanted - done};
    const iovec remote{reinterpret_cast<void*>(rendezvous.address + done),  // NOLINT: the sender's
                       receive.wanted - done};
    const ssize_t n = process_vm_readv(peer.lane.pid(), &local, 1, &remote, 1, 0);
    if (n <= 0) return false;  // memory of a kind that cannot be read so: it comes in parts
    done += static_cast<std::size_t>(n);
  }
  return true;
}

void Mail::end_transfer(Request& receive) {
  if (receive.data == nullptr) {
    receive.buffer.unpack(receive.packed.data(), receive.wanted);
    receive.packed = {};
  }
  finish(receive);
}

void Mail::finish(Request& request) {
  --busy_;
  if (request.then) request.then();
  request.over.store(true, std::memory_order_release);
  // Where nobody else has it any more, it goes.
  const std::shared_ptr<Request> last = std::move(request.itself);
}

std::uint64_t Mail::number(Request& request) {
  numbers_[++last_number_] = &request;
  return last_number_;
}

Request& Mail::known(std::uint64_t number, RequestKind kind, const Peer& from) {
  const int peer = from.lane.peer();
  const auto found = numbers_.find(number);
  if (found == numbers_.end() || found->second->what != kind || found->second->job_peer != peer) {
    throw_unknown(peer);
  }
  return *found->second;
}

Request& Mail::known_send(std::uint64_t number, const Peer& from) {
  Request& send = known(number, RequestKind::send, from);
  if (send.receiver != 0) throw_unknown(from.lane.peer());
  return send;
}

void Mail::forget(std::uint64_t number) { numbers_.erase(number); }

// --- Waiting -------------------------------------------------------------------------------------

void Mail::wait_for(Request& request) {
  const auto is_over = [&] { return request.over.load(std::memory_order_acquire); };
  const bool may_keep = request.what == RequestKind::send && request.job_peer != rank_;
  int passes = 0;
  wait(request.procedure, [&] {
    if (may_keep && !is_over()) keep_data(request, ++passes > spins_ + kYields);
    return is_over();
  });
}

void Mail::keep_data(Request& send, bool is_long) {
  std::deque<Out>& waiting = peers_[static_cast<std::size_t>(send.job_peer)]->out;
  if (waiting.empty() || !(is_long || waiting.front().keeps)) return;
  const auto out = std::find_if(waiting.rbegin(), waiting.rend(),
                                [&](const Out& each) { return each.send == &send; });
  if (out == waiting.rend()) return;
  const auto kept =
      std::make_shared<const std::vector<std::byte>>(out->data, out->data + out->bytes);
  out->data = kept->data();
  out->keeps = kept;
  out->send = nullptr;
  finish(send);
}

void Mail::rest(Pace& pace, const char* what) {
  ++pace.looks;
  if (!pace.patient && pace.looks < spins_) return relax();
  if (!pace.patient && pace.looks < spins_ + kYields) {
    sched_yield();
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (pace.next_look == decltype(now){}) {
    pace.next_look = now + kLookEvery;
    if (timeout_.count() > 0 && !pace.patient) pace.end = now + timeout_;
  } else if (now >= pace.next_look) {
    pace.next_look = now + kLookEvery;
    if (const auto error = comm_.error()) throw Error(*error);
    if (pace.end != decltype(now){} && now >= pace.end) {
      throw Error(ErrorCode::timed_out, "rank " + std::to_string(rank_) +
                                            " has waited longer than TUTTI_TIMEOUT: " + what);
    }
  }
  sleep_until_rung();
}

void Mail::sleep_until_rung() {
  Front& own = front();
  const std::uint32_t seen = own.bell.load(std::memory_order_acquire);
  own.sleeps.fetch_add(1, std::memory_order_seq_cst);
  if (light_) heavy_fence();
  bool news = false;
  {
    const Lock lock(*this);
    for (const Peer* peer : all_) news = news || peer->lane.has_news();
    for (const Peer* peer : all_) {
      news = news || ((!peer->out.empty() || !peer->streams.empty()) && peer->lane.may_have_room());
    }
  }
  if (!news) {
    // Not for ever: others may die.
    const timespec longest{0, several_ ? 2'000'000 : 20'000'000};
    syscall(SYS_futex, &own.bell, FUTEX_WAIT, seen, &longest, nullptr, 0);
  }
  own.sleeps.fetch_sub(1, std::memory_order_seq_cst);
}

void Mail::ring() {
  front().bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &front().bell, FUTEX_WAKE, 64, nullptr, nullptr, 0);
}

}  // namespace tutti::mpi
