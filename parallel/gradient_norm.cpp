#include "parallel/gradient_norm.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/error.h"

namespace tutti::parallel {

double gradient_norm(double squares, std::span<Axis* const> axes) {
  for (Axis* axis : axes) {
    std::vector<double> all(static_cast<std::size_t>(axis->size()));
    try {
      axis->run(call_of(Collective::all_gather, &squares, all.data(), 1, DataType::float64),
                "the norm of all gradients");
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("the norm of all gradients: {}", e.what()), e.rank());
    }
    squares = 0;
    for (const double s : all) squares += s;
  }
  return std::sqrt(squares);
}

}  // namespace tutti::parallel
