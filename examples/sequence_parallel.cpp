// A sequence that ranks divide, with a framework of one's own: each rank has some of its positions,
// and attends to all of them. Pairs of ranks divide heads among each other (Ulysses); keys and
// values travel round the ring of these pairs, in zigzag order, so that all ranks have the same
// work under the causal mask. The layer learns what another one makes of its input.
//
//     tutti run -n 4 build/examples/sequence_parallel
#include <tutti/parallel/mesh.h>
#include <tutti/parallel/sequence/attention.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace sequence = tutti::parallel::sequence;

constexpr std::size_t kSequence = 256, kHeads = 4, kDim = 8, kSteps = 60;

// y = x w, for each head of each row; or, of gradients, dw += x' dy.
static void multiply(const std::vector<float>& x, const std::vector<float>& w,
                     std::vector<float>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    float* const row = &y[i / kDim * kDim];
    if (i % kDim == 0) std::fill(row, row + kDim, 0.0f);
    for (std::size_t j = 0; j < kDim; ++j) row[j] += x[i] * w[i % kDim * kDim + j];
  }
}
static void add_gradient(const std::vector<float>& x, const std::vector<float>& dy,
                         std::vector<float>& dw) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < kDim; ++j)
      dw[i % kDim * kDim + j] += x[i] * dy[i / kDim * kDim + j];
  }
}

int main() {
  try {
    auto world = tutti::Communicator::from_environment();
    tutti::parallel::Mesh mesh(world, {{"ring", -1}, {"heads", world.size() % 2 == 0 ? 2 : 1}});
    auto &ring = mesh.axis("ring"), &heads = mesh.axis("heads");
    // A framework would hand in its attention (FlashAttention, say) here.
    sequence::ContextParallelAttention layer(
        {.heads = &heads, .keys = &ring},
        {.name = "layer", .sequence = kSequence, .heads = kHeads, .dim = kDim},
        sequence::plain_kernel(), {.order = sequence::SequenceOrder::zigzag});

    const std::size_t count = layer.rows() * kHeads * kDim;
    std::vector<float> x(count), v(count), out(count), target(count), dq(count), dk(count),
        dv(count);
    for (std::size_t i = 0; i < count; ++i) {  // the same numbers whatever the number of ranks
      const std::size_t position = layer.position(i / (kHeads * kDim));
      x[i] = std::sin(float(position * kHeads * kDim + i % (kHeads * kDim)) * 1.7f);
    }
    std::vector<float> w(kDim * kDim), other(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) other[i] = std::sin(3.0f * float(i));
    sequence::ContextParallelAttention::Saved saved;
    multiply(x, other, v);
    layer.forward(x.data(), x.data(), v.data(), target.data(), saved);
    ring.reset_traffic();
    heads.reset_traffic();

    float first_loss = 0, loss = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      multiply(x, w, v);
      layer.forward(x.data(), x.data(), v.data(), out.data(), saved);
      std::vector<float> dout(count), sums(w.size() + 1);  // the gradient of w, and the loss
      for (std::size_t i = 0; i < count; ++i) {
        const float off = out[i] - target[i];
        sums.back() += 0.5f * off * off / kSequence;
        dout[i] = off / kSequence;
      }
      layer.backward(dout.data(), saved, dq.data(), dk.data(), dv.data());
      add_gradient(x, dv, sums);
      world.all_reduce(sums);
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.5f * sums[i];
      loss = sums.back();
      if (step == 0) first_loss = loss;
    }
    const auto messages = ring.traffic()[tutti::Collective::send_recv],
               exchanges = heads.traffic()[tutti::Collective::all_to_all];
    std::printf(
        "rank %d of %d: the loss fell from %.4f to %.4f; it has %zu of %zu positions; %zu messages "
        "of keys, %zu B sent; %zu all-to-alls, %zu B sent\n",
        world.rank(), world.size(), first_loss, loss, layer.rows(), kSequence,
        std::size_t(messages.calls), std::size_t(messages.sent), std::size_t(exchanges.calls),
        std::size_t(exchanges.sent));
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "sequence_parallel: %s\n", error.what());
    return 1;
  }
}
