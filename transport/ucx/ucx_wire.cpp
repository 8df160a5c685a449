// A wire over UCX: its life, its links', and that of what UCX is given to do. The connection is in
// ucx_connection.cpp, sending in ucx_send.cpp, receiving in ucx_receive.cpp.
#include "transport/ucx/ucx_wire.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/handshake.h"
#include "transport/ucx/ucx_request.h"

namespace tutti {
namespace {

constexpr std::size_t kSpareRequests = 64;
constexpr auto kLastLandings = std::chrono::milliseconds(100);

}  // namespace

UcxWire::UcxWire(Owner& owner, std::shared_ptr<UcxWorker> worker)
    : Wire(owner, &worker->mutex()), worker_(std::move(worker)), ucx_(worker_->ucx()) {
  wire::fill_random(wire::writable_bytes_of(key_));
  const std::lock_guard lock(mutex_);
  worker_->add(key_, *this);
}

UcxWire::~UcxWire() {
  shut();
  const std::lock_guard lock(mutex_);
  worker_->remove(key_);
  for (Request* r : requests_) {
    r->wire = nullptr;
    worker_->keep(std::shared_ptr<Request>(r));
  }
}

std::shared_ptr<RingMemory> UcxWire::make_ring(std::size_t bytes) {
  auto memory = std::make_shared<RingMemory>(bytes);
  memory->registration = std::make_shared<UcxMapping>(worker_->context(), *memory);
  return memory;
}

// --- What UCX is at ------------------------------------------------------------------------------

UcxWire::Request* UcxWire::new_request() {
  std::unique_ptr<Request> r;
  if (spare_.empty()) {
    r = std::make_unique<Request>();
  } else {
    r = std::move(spare_.back());
    spare_.pop_back();
  }
  r->wire = this;
  r->worker = worker_.get();
  r->index = requests_.size();
  requests_.push_back(r.get());
  return r.release();
}

void UcxWire::end(Request* r) {
  if (r->calling) {
    r->ended = true;
    return;
  }
  UcxWire* const wire = r->wire;
  if (wire == nullptr) return r->worker->release(r);
  std::unique_ptr<Request> owned(r);
  wire->requests_.back()->index = r->index;
  wire->requests_[r->index] = wire->requests_.back();
  wire->requests_.pop_back();
  if (r->is_long) {
    --wire->long_;
    if (!wire->sending_.empty()) wire->worker_->push_soon(*wire);
  }
  if (r->out != nullptr) wire->end_loan(*r);
  r->memory.reset();
  r->landing = nullptr;
  r->lent = nullptr;
  r->out = nullptr;
  r->link = nullptr;
  r->ended = r->is_long = false;
  if (wire->spare_.size() < kSpareRequests) wire->spare_.push_back(std::move(owned));
}

// --- Messages that do not go through the rings ---------------------------------------------------

void UcxWire::end_loan(const Request& done) {
  // Requests end in any order: what all before it have done has left.
  const auto apart = goes_apart(done.header.frame.bytes);
  std::uint64_t up_to = done.out->passed();
  for (const Request* r : requests_) {
    if (r->out == done.out && goes_apart(r->header.frame.bytes) == apart) {
      up_to = std::min(up_to, r->header.frame.number - 1);
    }
  }
  done.out->sent(up_to, done.header.frame.bytes);
}

bool UcxWire::keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) {
  return std::ranges::none_of(requests_, [&](const Request* r) {
    return r->out == &link && r->lent < end && begin < r->lent + r->header.bytes();
  });
}

bool UcxWire::stop_landing(InLink& link) {
  // What comes from now on, does not land.
  link.clear_expected();
  return is_over() || std::ranges::none_of(requests_, [&](const Request* r) {
           return r->link == &link && r->landing != nullptr;
         });
}

bool UcxWire::is_over() {
  if (!peer_ended_.load(std::memory_order_acquire)) return false;
  if (!std::exchange(drained_, true)) let_go();
  return true;
}

bool UcxWire::is_landing() const {
  return std::ranges::any_of(requests_, [](const Request* r) { return r->landing != nullptr; });
}

void UcxWire::give_up(const std::string& why) {
  close_with(why);
  if (is_landing()) worker_->rest();
}

void UcxWire::let_go() {
  // Of a peer that has died nothing comes any more. What is on its way from one that has not,
  // comes.
  const auto end = std::chrono::steady_clock::now() + kLastLandings;
  while (is_landing() && std::chrono::steady_clock::now() < end) worker_->progress();
}

// --- What drives it ------------------------------------------------------------------------------

void UcxWire::take() {
  worker_->poll();
  if (!ends_.empty()) settle();
}

bool UcxWire::serve(std::vector<std::pair<Owner*, std::uint64_t>>& left) {
  if (!closed_) push();
  if (!ends_.empty()) settle();
  for (const std::uint64_t group : peer_left_) left.emplace_back(&owner_, group);
  peer_left_.clear();
  return !closed_ && ep_ != nullptr &&
         (!sending_.empty() || !said_.empty() || !requests_.empty() || !ends_.empty());
}

// --- Links that end ------------------------------------------------------------------------------

void UcxWire::drop(OutLink& link) {
  open_.erase(link.number());
  for (Request* r : requests_) {
    if (r->out == &link) r->out = nullptr;
  }
}

void UcxWire::drop(InLink& link) {
  for (Request* r : requests_) {
    if (r->link == &link) r->link = nullptr;
  }
}

}  // namespace tutti
