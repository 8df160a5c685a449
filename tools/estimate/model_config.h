// The sizes of a model from a config.json of Hugging Face's transformers.
#pragma once

#include <string>

#include "parallel/estimate/model.h"

namespace tutti {

/// Throws Error(invalid_argument): no such file, no JSON, a size that is missing, or a kind of
/// model that the estimator does not know (a mixture of experts).
parallel::estimate::TransformerSizes read_model_config(const std::string& path);

}  // namespace tutti
