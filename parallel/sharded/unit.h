// The user's declarations: parameters, in units that the engine gathers and reduces together, such
// as a transformer block. All ranks declare the same.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::parallel {

/// The treatment of a unit's full parameters after its forward, if ranks shard parameters (stage
/// 3).
enum class Reshard : unsigned char {
  yes,       // they are freed, and gathered again for the backward
  no,        // they stay until the backward is over
  to_group,  // freed; a part of them stays, so that a small group can gather them (ZeRO++'s hpZ)
};

/// "to_group".
std::string_view name(Reshard reshard);

struct UnitParameter {
  std::string name;
  std::size_t count = 0;      // elements; may be 0
  std::size_t rows = 1;       // the leading dimension, which divides `count`
  double weight_decay = 1.0;  // times the optimizer's: 0 for biases and norms
  /// Whether the norm of the gradients counts it. If ranks of other axes than the engine's have
  /// copies, only one of them counts it (hybrid/shared_gradients.h).
  bool in_norm = true;
};

struct Unit {
  std::string name;
  std::vector<UnitParameter> parameters;
  std::optional<Reshard> reshard = std::nullopt;  // else the policy's
};

/// Names a parameter of a declared model: number `parameter` of unit number `unit`.
struct ParameterId {
  std::size_t unit = 0, parameter = 0;
};

}  // namespace tutti::parallel
