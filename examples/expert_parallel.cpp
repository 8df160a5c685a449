// Expert parallelism with a framework of one's own: tokens of eight kinds, which a router learns to
// send to eight experts. Each rank has tokens of its own, and some of the experts: rows of tokens
// travel to the experts' ranks, and the results travel back. The router is the same on all ranks,
// which average its gradient; each expert's gradient holds what the tokens of all ranks add to it.
//
//     tutti run -n 4 build/examples/expert_parallel
#include <tutti/parallel/data_parallel/data_parallel.h>
#include <tutti/parallel/expert/expert_parallel.h>
#include <tutti/parallel/mesh.h>
#include <tutti/parallel/tensor/multiply.h>
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace parallel = tutti::parallel;
using parallel::tensor::multiply;

constexpr std::size_t kWidth = 8, kExperts = 8, kTopK = 2, kTokens = 64, kSteps = 300;
constexpr float kRate = 0.5f;

// Numbers of about 1.
static float wave(std::size_t i) { return std::sin(1.3f * float(i)) + std::cos(float(i * i % 89)); }

int main() {
  try {
    auto world = tutti::Communicator::from_environment();
    parallel::Mesh mesh(world, {{"ep", -1}});
    auto& ep = mesh.axis("ep");
    const parallel::expert::Router router("moe", {.experts = kExperts, .top_k = kTopK});
    parallel::expert::ExpertParallel layer(
        ep, {.name = "moe", .experts = kExperts, .width = kWidth, .top_k = kTopK});
    parallel::DataParallel dense(ep, {{"router", {kWidth, kExperts}}});
    constexpr std::size_t kMatrix = kWidth * kWidth;
    std::vector<float> r(kWidth * kExperts), w(layer.local_experts() * kMatrix), dw(w.size());
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = 0.1f * wave(i);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = 0.1f * wave(1000 + layer.first_expert() * kMatrix + i);
    }

    parallel::expert::Routed routed;
    parallel::expert::Saved saved;
    std::vector<float> x(kTokens * kWidth), y(x.size()), dx(x.size()), logits(kTokens * kExperts);
    std::vector<double> dweights(kTokens * kTopK);
    double first_loss = 0, loss = 0;
    ep.reset_traffic();
    for (std::size_t step = 0; step < kSteps; ++step) {
      const std::size_t batch = step % 8 * std::size_t(ep.size()) + std::size_t(ep.rank());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t token = i / kWidth, kind = token % kExperts;
        x[i] = (i % kWidth == kind ? 2.0f : 0.0f) + 0.3f * wave(batch * x.size() + i);
      }
      multiply({.rows = kTokens,
                .columns = kExperts,
                .inner = kWidth,
                .a = x.data(),
                .b = r.data(),
                .c = logits.data()});
      router.forward(logits.data(), kTokens, tutti::DataType::float32, routed);
      const auto balance = router.balance(ep, routed);
      // A framework would run its experts here.
      layer.forward(
          x.data(), routed,
          [&](std::size_t e, const void* rows, std::size_t count, void* results) {
            multiply({.rows = count,
                      .columns = kWidth,
                      .inner = kWidth,
                      .a = rows,
                      .b = &w[e * kMatrix],
                      .c = results});
          },
          y.data(), saved);

      loss = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {  // y becomes the gradient of the loss
        const std::size_t token = i / kWidth, kind = token % kExperts;
        y[i] -= x[token * kWidth + (i + kind) % kWidth];  // a kind of tokens is turned by so much
        loss += 0.5 * y[i] * y[i] / kTokens;
        y[i] /= kTokens;
      }
      std::fill(dw.begin(), dw.end(), 0.0f);
      layer.backward(
          y.data(),
          [&](std::size_t e, const void* rows, const void* dresults, std::size_t count,
              void* drows) {
            multiply({.rows = kWidth,
                      .columns = kWidth,
                      .inner = count,
                      .a = rows,
                      .transpose_a = true,
                      .b = dresults,
                      .c = &dw[e * kMatrix],
                      .adds = true});
            multiply({.rows = count,
                      .columns = kWidth,
                      .inner = kWidth,
                      .a = dresults,
                      .b = &w[e * kMatrix],
                      .transpose_b = true,
                      .c = drows});
          },
          saved, dx.data(), dweights);
      // dx would go on to the layers below, with the router's part. The average divides by the
      // ranks, and the loss of the balance is one of all ranks.
      router.backward(routed, dweights, {&balance, 0.01 * ep.size()}, logits.data(),
                      tutti::DataType::float32);
      multiply({.rows = kWidth,
                .columns = kExperts,
                .inner = kTokens,
                .a = x.data(),
                .transpose_a = true,
                .b = logits.data(),
                .c = dense.gradient(0)});
      dense.ready(0);
      (void)dense.finish();
      const auto* const dr = static_cast<const float*>(dense.gradient(0));
      for (std::size_t i = 0; i < r.size(); ++i) r[i] -= kRate * dr[i];
      const float of_ranks = kRate * float(layer.gradient_scale());
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= of_ranks * dw[i];
      if (step == 0) first_loss = loss;
    }
    std::size_t rows = 0;
    for (const std::size_t count : saved.received()) rows += count;
    std::printf(
        "rank %d of %d: the loss fell from %.3f to %.3f; its %zu experts took %zu of %zu rows; "
        "%zu all_to_all_v\n",
        ep.rank(), ep.size(), first_loss, loss, layer.local_experts(), rows,
        kTokens * kTopK * std::size_t(ep.size()),
        std::size_t(ep.traffic()[tutti::Collective::all_to_all_v].calls));
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "expert_parallel: %s\n", error.what());
    return 1;
  }
}
