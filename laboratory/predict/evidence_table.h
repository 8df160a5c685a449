// What bench/prediction_evidence.py found in published logs (docs/verdict.md lists them). By
// CallKind: the ramp at 16 KiB, 64 KiB, ... 16 GiB, and the bands of the ranges of sizes.
#pragma once

#include <array>

#include "laboratory/predict/evidence.h"

namespace tutti {

constexpr double kFirstKnot = 14;  // log2 of bytes; the next ones are 2 apart
/// Where the second, third and fourth range of sizes begin.
constexpr std::array<double, 3> kEvidenceRanges{65536, 4194304, 268435456};

struct Evidence {
  std::array<double, 11> ramp;
  std::array<Band, 4> bands;
};
constexpr std::array<Evidence, 8> kEvidence{{
    // one_switch
    {{1.00, 1.00, 1.00, 1.00, 1.09, 1.16, 1.13, 1.05, 1.02, 0.99, 0.98},
     {{{0.87, 1.36, 0, 0}, {0.83, 1.50, 0, 0}, {0.84, 1.60, 2, 12}, {0.84, 1.28, 2, 14}}}},
    // one_links
    {{1.03, 1.07, 1.07, 1.06, 1.10, 1.13, 1.11, 1.09, 1.06, 1.04, 1.03},
     {{{0.90, 1.23, 3, 18}, {0.81, 1.48, 3, 18}, {0.83, 1.51, 3, 13}, {0.86, 1.33, 3, 18}}}},
    // one_host
    {{1.03, 1.01, 0.99, 1.02, 1.03, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00},
     {{{0.87, 1.36, 2, 36}, {0.79, 1.43, 2, 36}, {0.83, 1.41, 2, 36}, {0.86, 1.21, 2, 30}}}},
    // one_all_to_all
    {{1.04, 1.06, 1.09, 1.10, 1.07, 1.05, 1.12, 1.12, 1.06, 1.03, 1.02},
     {{{0.87, 1.34, 2, 12}, {0.88, 1.44, 2, 12}, {0.75, 1.67, 2, 12}, {0.89, 1.29, 1, 7}}}},
    // several_sums
    {{1.14, 1.19, 1.18, 1.20, 1.32, 1.49, 1.55, 1.32, 1.08, 1.01, 0.98},
     {{{0.98, 1.62, 1, 6}, {1.03, 1.78, 1, 6}, {0.70, 3.46, 3, 13}, {0.73, 2.02, 4, 17}}}},
    // several_rings
    {{1.05, 1.10, 1.17, 1.18, 1.08, 1.12, 1.05, 1.00, 0.99, 1.02, 1.02},
     {{{0.86, 1.44, 2, 12}, {0.91, 1.55, 3, 14}, {0.72, 1.59, 5, 28}, {0.70, 1.31, 5, 26}}}},
    // several_alone
    {{1.03, 1.06, 1.08, 1.12, 1.12, 1.16, 1.13, 1.09, 1.07, 1.07, 1.07},
     {{{0.81, 1.42, 3, 18}, {0.87, 1.44, 4, 20}, {0.77, 1.93, 4, 24}, {0.82, 1.38, 4, 18}}}},
    // several_all_to_all
    {{0.98, 0.97, 0.95, 0.96, 0.90, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00},
     {{{0.85, 1.45, 1, 6}, {0.79, 1.46, 1, 6}, {0.70, 1.72, 1, 1}, {0.71, 1.47, 0, 0}}}},
}};

}  // namespace tutti
