// A wire over UCX: its life, its links', and that of what UCX is given to do. The connection is in
// ucx_connection.cpp, sending in ucx_send.cpp, receiving in ucx_receive.cpp.
#include "transport/ucx/ucx_wire.h"

#include "transport/handshake.h"
#include "transport/ucx/ucx_request.h"

namespace tutti {
namespace {

constexpr std::size_t kSpareRequests = 64;

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
  r->memory.reset();
  r->link = nullptr;
  r->ended = r->is_long = false;
  if (wire->spare_.size() < kSpareRequests) wire->spare_.push_back(std::move(owned));
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

void UcxWire::drop(OutLink& link) { open_.erase(link.number()); }

void UcxWire::drop(InLink& link) {
  for (Request* r : requests_) {
    if (r->link == &link) r->link = nullptr;
  }
}

}  // namespace tutti
