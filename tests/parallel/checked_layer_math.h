// The arithmetic of layers on a GPU that checks the order of its work (checked_gpu.h): the host's,
// when its turn comes on the stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/layer_math.h"
#include "parallel/sequence/kernel.h"
#include "tests/parallel/checked_gpu.h"

namespace tutti::test {

class CheckedLayerMath final : public parallel::LayerMath {
 public:
  explicit CheckedLayerMath(CheckedGpu& gpu) : gpu_(gpu) { gpu.math = this; }

  void multiply(const parallel::tensor::Product& p) override {
    const std::size_t element = size_of(p.type), c = p.rows * p.columns * element;
    launch("a product",
           {{p.a, p.rows * p.inner * element},
            {p.b, p.inner * p.columns * element},
            {p.c, p.adds ? c : 0}},
           {{p.c, c}}, [p](LayerMath& host) { host.multiply(p); });
  }
  void add_to_rows(const Matrix& m, const void* row, void* data) override {
    const Range all{data, bytes(m)};
    launch("a sum with rows", {all, {row, m.width * size_of(m.type)}}, {all},
           [=](LayerMath& host) { host.add_to_rows(m, row, data); });
  }
  void add_rows(const Matrix& m, const void* data, void* sum) override {
    const Range to{sum, m.width * size_of(m.type)};
    launch("a sum of rows", {{data, bytes(m)}, to}, {to},
           [=](LayerMath& host) { host.add_rows(m, data, sum); });
  }
  void take_rows(const Chosen& c, const void* matrix, void* out) override {
    launch("chosen rows", {{matrix, whole(c)}}, {{out, rows(c)}},
           [=, kept = Kept(c)](LayerMath& host) { host.take_rows(kept.chosen(), matrix, out); });
  }
  void add_to_chosen(const Chosen& c, const void* added, void* matrix) override {
    const Range all{matrix, whole(c)};
    launch(
        "a sum with chosen rows", {{added, rows(c)}, all}, {all},
        [=, kept = Kept(c)](LayerMath& host) { host.add_to_chosen(kept.chosen(), added, matrix); });
  }
  void scale_rows(const Chosen& c, std::span<const double> factors, const void* matrix, void* to,
                  const void* with, double* products) override {
    launch("scaled rows", {{matrix, whole(c)}, {with, rows(c)}},
           {{to, rows(c)}, {products, c.which.size() * sizeof(double)}},
           [=, kept = Kept(c), f = copy(factors)](LayerMath& host) {
             host.scale_rows(kept.chosen(), f, matrix, to, with, products);
           });
  }
  void sum_chosen(const Chosen& c, std::size_t each, std::span<const double> factors,
                  const void* matrix, void* to) override {
    launch("a sum of chosen rows", {{matrix, whole(c)}}, {{to, rows(c) / each}},
           [=, kept = Kept(c), f = copy(factors)](LayerMath& host) {
             host.sum_chosen(kept.chosen(), each, f, matrix, to);
           });
  }
  void largest(const Logits& logits, std::span<double> most) override {
    now("the largest", logits, [&](LayerMath& host) { host.largest(logits, most); });
  }
  void exponentials(const Logits& logits, std::span<const double> most, std::span<double> sums,
                    std::span<double> of_targets) override {
    now("exponentials", logits,
        [&](LayerMath& host) { host.exponentials(logits, most, sums, of_targets); });
  }
  void cross_entropy_gradient(const Logits& logits, std::span<const double> log_sums,
                              std::span<const double> factors, void* out) override {
    const std::size_t all = log_sums.size() * logits.width * size_of(logits.type);
    launch("the gradient of logits", {{logits.data, all}}, {{out, all}},
           [=, of = logits, targets = copy(logits.targets), sums = copy(log_sums),
            kept = copy(factors)](LayerMath& host) {
             Logits l = of;
             l.targets = targets;
             host.cross_entropy_gradient(l, sums, kept, out);
           });
  }
  void merge(DataType type, std::size_t rows, std::size_t dim, const void* part,
             const void* part_lse, void* out, void* lse) override {
    const std::size_t wide = size_of(parallel::sequence::wide(type));
    const Range sum{out, rows * dim * wide}, sums{lse, rows * wide};
    launch("a merge", {{part, rows * dim * size_of(type)}, {part_lse, rows * wide}, sum, sums},
           {sum, sums},
           [=](LayerMath& host) { host.merge(type, rows, dim, part, part_lse, out, lse); });
  }
  void add_part(DataType type, std::size_t count, const void* part, void* sum) override {
    const Range to{sum, count * size_of(parallel::sequence::wide(type))};
    launch("a sum of parts", {{part, count * size_of(type)}, to}, {to},
           [=](LayerMath& host) { host.add_part(type, count, part, sum); });
  }
  void sum_heads(DataType type, std::size_t rows, std::size_t dim, std::size_t heads,
                 std::span<const std::size_t> head_of, const void* messages, void* own) override {
    const std::size_t head = rows * dim * size_of(type);
    launch("a sum of heads", {{messages, head_of.size() * head}}, {{own, heads * head}},
           [=, of = copy(head_of)](LayerMath& host) {
             host.sum_heads(type, rows, dim, heads, of, messages, own);
           });
  }
  void dot_rows(DataType type, std::size_t rows, std::size_t dim, const void* out, const void* dout,
                void* delta) override {
    const std::size_t in = rows * dim * size_of(type);
    launch("dot products", {{out, in}, {dout, in}},
           {{delta, rows * size_of(parallel::sequence::wide(type))}},
           [=](LayerMath& host) { host.dot_rows(type, rows, dim, out, dout, delta); });
  }

 private:
  using Range = CheckedGpu::Range;
  using Work = std::function<void(LayerMath&)>;

  template <class T>
  static std::vector<T> copy(std::span<const T> values) {
    return {values.begin(), values.end()};
  }
  /// With its own numbers.
  struct Kept {
    explicit Kept(const Chosen& c) : of(c), which(copy(c.which)) {}
    Chosen chosen() const {
      Chosen c = of;
      c.which = which;
      return c;
    }
    Chosen of;
    std::vector<std::int64_t> which;
  };
  static std::size_t bytes(const Matrix& m) { return m.rows * m.width * size_of(m.type); }
  static std::size_t rows(const Chosen& c) { return c.which.size() * c.width * size_of(c.type); }
  static std::size_t whole(const Chosen& c) { return c.count * c.width * size_of(c.type); }

  void launch(std::string what, const std::vector<Range>& reads, const std::vector<Range>& writes,
              Work work) {
    gpu_.launch(std::move(what), gpu_.current(), reads, writes,
                [work = std::move(work)] { work(parallel::host_layer_math()); });
  }
  void now(std::string what, const Logits& logits, Work work) {
    const std::size_t all = logits.targets.size() * logits.width * size_of(logits.type);
    launch(std::move(what), {{logits.data, all}}, {}, std::move(work));
    gpu_.synchronize(gpu_.record(gpu_.current()));
  }

  CheckedGpu& gpu_;
};

}  // namespace tutti::test
