// Messages of tensors. On a GPU they are matched in their order, as NCCL's; tags do not count.
#include "backend.h"
#include "errors.h"
#include "tensors.h"

namespace tutti::pytorch {
namespace {

/// What a tensor needs to be sent or received.
struct Prepared {
  Operation operation;
  at::Tensor memory;
};

Prepared prepare(Tensors& tensors, bool sends) {
  const at::Tensor& tensor = only(tensors, sends ? "send" : "recv");
  Prepared p{Operation(sends ? ::c10d::OpType::SEND : ::c10d::OpType::RECV,
                       sends ? "tutti:send" : "tutti:recv", tensor.device()),
             {}};
  p.operation.results = tensors;
  p.memory = sends ? input(p.operation, tensor) : output(p.operation, tensor, false);
  return p;
}

}  // namespace

WorkPointer Backend::message(Tensors& tensors, int peer, int tag, bool sends) {
  auto [operation, memory] = prepare(tensors, sends);
  TORCH_CHECK(peer == Messages::kAny || (peer >= 0 && peer < size_), operation.name,
              ": there is no rank ", peer, " of ", size_);
  const auto issued = [&]() -> WorkPointer {
    const auto held = lock();
    check_usable();
    refuse_estimate(operation.name, "dense collectives");
    const Milliseconds timeout = effective(::c10d::kUnsetTimeout);
    if (!memory.is_cpu()) {
      TORCH_CHECK(peer != Messages::kAny, "recv: on a GPU its source has to be named");
      Step s;
      s.call.collective = Collective::send_recv;
      s.call.in = sends ? memory.const_data_ptr() : nullptr;
      s.call.out = sends ? nullptr : memory.data_ptr();
      s.call.count = count_of(memory);
      s.call.type = elements_of(memory.scalar_type()).type;
      s.call.peer = peer;
      s.call.sends = sends;
      operation.steps.push_back(s);
      return put_on_stream(std::move(operation), timeout);
    }
    if (!messages_) messages_ = std::make_shared<Messages>(*comm());
    const Messages::Memory where{static_cast<std::byte*>(memory.data_ptr()), memory.nbytes(),
                                 memory.scalar_type()};
    auto work = make_work(std::move(operation), timeout);
    const auto done = [work](const std::optional<Error>& why, int source) {
      work->set_source(source);
      work->end(why);
    };
    if (sends) {
      messages_->send(where, peer, tag, timeout, done);
    } else if (messages_->receive(where, peer, tag, timeout, done)) {
      work->look([of = std::weak_ptr<Messages>(messages_)] {
        if (const auto messages = of.lock()) messages->expire();
      });
    }
    return noted(work);
  };
  return translated(issued, [this](const Error& error) { hears(error); });
}

WorkPointer Backend::send(Tensors& tensors, int peer, int tag) {
  return message(tensors, peer, tag, true);
}

WorkPointer Backend::recv(Tensors& tensors, int peer, int tag) {
  return message(tensors, peer, tag, false);
}

WorkPointer Backend::recvAnysource(Tensors& tensors, int tag) {
  return message(tensors, Messages::kAny, tag, false);
}

}  // namespace tutti::pytorch
