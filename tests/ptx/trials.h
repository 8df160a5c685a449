// Small calls that reach every part of a kernel: collectives by each protocol, messages, and what
// happens when something is wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/ptx/ptx_device.h"

namespace tutti::ptx {

struct Trial {
  std::string name;
  /// What is wrong, or nothing.
  std::function<std::string(PtxDevice&, DataType)> run;
};

const std::vector<Trial>& trials();

/// Whether the trial found nothing wrong; a Fault and an Error are what is wrong as well.
std::string attempt(const Trial& trial, PtxDevice& device, DataType type);

}  // namespace tutti::ptx
