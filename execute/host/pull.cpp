// Messages of send and recv that the receiver pulls: the sender tells where its memory is, and the
// receiver copies from there, without slots. The send is over when the receiver has freed the
// message. The sender alone decides whether that pays (comm/impl.cpp); the message's tag says so.
#include <algorithm>

#include "execute/host/operation.h"

namespace tutti {

void Operation::pull(const Action& action, std::size_t shift) {
  const ReceiveLink& r = action.receives.front();
  const std::size_t bytes = binding_->out.count * element_;
  if (shift == 0) {
    peers_.resize(1);
    learn(r.rank, r.link->slot(sizeof(BufferAddresses)));
    const std::uint64_t elements = peers_.front().said.scalar;
    if (elements != binding_->out.count) {
      mismatch(r.rank, elements * element_, r.link->tag(), bytes);
    }
  }
  const std::size_t length = std::min(lanes_.front().tile_bytes, bytes - shift);
  const CompiledOperand operands[] = {{.where = CompiledOperand::out},
                                      {.where = CompiledOperand::peer_in, .rank = r.rank}};
  move_combined(action, {operands, 1, 1, length / element_, /*remote=*/true}, shift, true);
  if (shift + length < bytes) return;
  r.link->free();
  ring(*r.doorbell);
}

}  // namespace tutti
