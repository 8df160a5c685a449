#include "tests/parallel/hybrid_place.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "parallel/pipeline/generate.h"

namespace tutti::test {

using namespace parallel;
using Size = HybridSizes;

HybridPlace::HybridPlace(Mesh& m, const HybridCase& given)
    : mesh(m),
      c(given),
      schedule(pipeline::generate(*pipeline::find_generator(c.schedule),
                                  {c.pp, c.micro_batches, c.chunks})),
      vocabulary(Size::tokens, m.axis("tp")) {}

std::vector<HeldUnit> held_units(const HybridPlace& at, const Weights& end) {
  const Weights start = Weights::initial();
  const Copies copies = at.c.sequence ? Copies::partial : Copies::equal;
  const auto hold = [&](const std::string& name, auto part, double decay, Copies how,
                        bool tied = false) {
    HeldParameter p{{name, how, tied}, decay, part(start), part(end)};
    const bool is_copy = (how != Copies::none && at.tp() > 0) || (tied && !at.has(0));
    if (is_copy) {
      for (double& v : p.start.values) v = 77;
    }
    return p;
  };
  const auto whole = [&](const std::string& name, auto of) { return hold(name, of, 0, copies); };
  std::vector<HeldUnit> units;
  for (int stage = 0; stage < at.schedule.stages(); ++stage) {
    if (!at.has(stage)) continue;
    const bool first = stage == 0, last = stage == at.last();
    if (first || (last && at.tied())) {
      // Rows of tokens; those of the padding are 0.
      const auto rows = [&](const Weights& w) {
        Matrix m(at.vocabulary.local, Size::width);
        std::memcpy(m.data(), w.embedding.data() + at.vocabulary.begin * Size::width,
                    at.vocabulary.real() * Size::width * sizeof(double));
        return m;
      };
      units.push_back({"embedding", {hold("embedding", rows, 1, Copies::none, at.tied())}});
    }
    for (std::size_t k = at.blocks(stage).first; k < at.blocks(stage).end(); ++k) {
      const auto sliced = [&at, k](Matrix Weights::Block::*m, bool columns) {
        return [&at, k, m, columns](const Weights& w) {
          return (w.blocks[k].*m).slice(at.tp(), at.c.tp, columns);
        };
      };
      units.push_back(
          {fmt::format("block {}", k),
           {whole(fmt::format("gain {}", k), [k](auto& w) { return w.blocks[k].norm.gain; }),
            whole(fmt::format("shift {}", k), [k](auto& w) { return w.blocks[k].norm.bias; }),
            hold("w1", sliced(&Weights::Block::w1, false), 1, Copies::none),
            hold("b1", sliced(&Weights::Block::b1, true), 0, Copies::none),
            hold("w2", sliced(&Weights::Block::w2, true), 1, Copies::none),
            whole(fmt::format("b2 {}", k), [k](auto& w) { return w.blocks[k].b2; })}});
    }
    if (last) {
      units.push_back({"norm",
                       {whole("gain", [](auto& w) { return w.norm.gain; }),
                        whole("shift", [](auto& w) { return w.norm.bias; })}});
    }
  }
  return units;
}

}  // namespace tutti::test
