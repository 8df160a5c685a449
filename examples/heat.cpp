// Domain parallelism: heat spreads over a plate. The plate is cut into a block for each rank, and a
// rank needs one row or column of cells from each neighbour in every step. It computes the interior
// of its block while they travel. Rank 0 then computes the whole plate by itself, and compares. The
// plate is a ring from left to right; above and below it is cold.
//
//     tutti run -n 6 build/examples/heat [heat.svg]
#include <tutti/parallel/domain/halo.h>
#include <tutti/parallel/mesh.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

using namespace tutti::parallel;
using domain::Box, domain::Edge, domain::Halo;

constexpr std::int64_t kRows = 48, kColumns = 72;
constexpr int kSteps = 300;

/// A rectangle of cells, row by row.
struct Plate {
  explicit Plate(const Box& b) : box(b), heat(std::size_t(b[0].size() * b[1].size())), next(heat) {}
  double& at(std::vector<double>& values, std::int64_t y, std::int64_t x) const {
    return values[std::size_t((y - box[0].begin) * box[1].size() + x - box[1].begin)];
  }
  /// Some cells of the next moment; those around them are there.
  void step(const Box& cells) {
    for (std::int64_t y = cells[0].begin; y < cells[0].end; ++y) {
      for (std::int64_t x = cells[1].begin; x < cells[1].end; ++x) {
        const double here = at(heat, y, x);
        const double around =
            at(heat, y - 1, x) + at(heat, y + 1, x) + at(heat, y, x - 1) + at(heat, y, x + 1);
        at(next, y, x) = here + 0.2 * (around - 4 * here);
      }
    }
  }
  void begin(const Box& cells) {  // two hot spots, and one that crosses the ring's seam
    for (std::int64_t y = cells[0].begin; y < cells[0].end; ++y) {
      for (std::int64_t x = cells[1].begin; x < cells[1].end; ++x) {
        const auto spot = [&](double row, double column, double radius) {
          const double across = std::remainder(double(x) - column, double(kColumns));
          return std::hypot(double(y) - row, across) < radius ? 100.0 : 0.0;
        };
        at(heat, y, x) = spot(14, 20, 8) + spot(34, 44, 6) + spot(24, 0, 10);
      }
    }
  }
  Box box;
  std::vector<double> heat, next;
};

/// What the ranks have to agree with.
static std::vector<double> alone() {
  Plate plate({{-1, kRows + 1}, {-1, kColumns + 1}});
  const Box all{{0, kRows}, {0, kColumns}};
  plate.begin(all);
  for (int i = 0; i < kSteps; ++i) {
    for (std::int64_t y = 0; y < kRows; ++y) {
      plate.at(plate.heat, y, -1) = plate.at(plate.heat, y, kColumns - 1);
      plate.at(plate.heat, y, kColumns) = plate.at(plate.heat, y, 0);
    }
    plate.step(all);
    std::swap(plate.heat, plate.next);
  }
  std::vector<double> field;
  for (std::int64_t y = 0; y < kRows; ++y) {
    for (std::int64_t x = 0; x < kColumns; ++x) field.push_back(plate.at(plate.heat, y, x));
  }
  return field;
}

/// The field, a path for each colour, and the edges of the blocks. False: the file cannot be
/// written.
static bool draw(const char* file, const std::vector<double>& field, const domain::Blocks& blocks) {
  constexpr int kColours = 24, kSize = 8;
  double most = 0;
  for (const double heat : field) most = std::max(most, heat);
  std::array<std::ostringstream, kColours> paths;
  for (std::int64_t y = 0; y < kRows; ++y) {
    for (std::int64_t x = 0; x < kColumns;) {
      const auto colour = [&](std::int64_t at) {
        return std::min(kColours - 1, int(field[std::size_t(y * kColumns + at)] / most * kColours));
      };
      const std::int64_t first = x;
      while (++x < kColumns && colour(x) == colour(first)) {
      }
      paths[std::size_t(colour(first))] << "M" << first << " " << y << "h" << x - first << "v1H"
                                        << first << "z";
    }
  }
  std::ofstream out(file);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kColumns * kSize << "\" height=\""
      << kRows * kSize << "\" viewBox=\"0 0 " << kColumns << " " << kRows
      << "\" shape-rendering=\"crispEdges\">\n";
  for (int i = 0; i < kColours; ++i) {
    const double warm = double(i) / (kColours - 1);  // from dark blue by red to yellow
    out << "<path fill=\"rgb(" << int(20 + 235 * std::min(1.0, 1.6 * warm)) << ","
        << int(20 + 215 * std::max(0.0, 2 * warm - 1)) << ","
        << int(80 * (1 - warm) + 60 * std::sin(3.14 * warm)) << ")\" d=\""
        << paths[std::size_t(i)].str() << "\"/>\n";
  }
  out << "<g stroke=\"white\" stroke-width=\"0.15\" fill=\"none\">\n";
  for (int r = 0; r < blocks.grid().ranks(); ++r) {
    const Box b = blocks.box(r);
    out << "<rect x=\"" << b[1].begin << "\" y=\"" << b[0].begin << "\" width=\"" << b[1].size()
        << "\" height=\"" << b[0].size() << "\"/>\n";
  }
  out << "</g>\n</svg>\n" << std::flush;
  return bool(out);
}

int main(int argc, char** argv) {
  try {
    auto world = tutti::Communicator::from_environment();
    int rows = int(std::sqrt(double(world.size())));
    while (world.size() % rows != 0) --rows;
    Mesh mesh(world, {{"y", rows}, {"x", -1}}, {{"y", "x"}});
    auto& axis = mesh.axis({"y", "x"});
    // A cell reads its four neighbours: a cross, without corners.
    Halo halo(axis, {.name = "heat",
                     .dimensions = {{"y", kRows, rows},
                                    {"x", kColumns, world.size() / rows, Edge::periodic}},
                     .stencils = {{.kernel = 3, .padding = 1}, {.kernel = 3, .padding = 1}},
                     .type = tutti::DataType::float64,
                     .corners = false});
    axis.reset_traffic();

    Plate plate(halo.padded());
    plate.begin(halo.own());
    for (int i = 0; i < kSteps; ++i) {
      halo.start(plate.heat.data());
      plate.step(halo.interior());
      halo.finish();
      for (const Box& box : halo.border()) plate.step(box);
      std::swap(plate.heat, plate.next);
    }
    const auto carried = axis.traffic()[tutti::Collective::send_recv];

    // All blocks, one after the other, and then the plate that they make.
    const domain::Blocks& blocks = halo.layout().input();
    std::vector<std::size_t> counts;
    for (int r = 0; r < world.size(); ++r) counts.push_back(halo.elements(blocks.box(r)));
    std::vector<double> own(halo.elements(halo.own())), all(std::size_t(kRows * kColumns));
    halo.extract(plate.heat.data(), own.data());
    world.all_gather_v(own.data(), all.data(), counts, {}, tutti::DataType::float64);
    std::printf("rank %d of %d: %d steps, %zu messages, %zu B sent\n", world.rank(), world.size(),
                kSteps, std::size_t(carried.calls), std::size_t(carried.sent));
    if (world.rank() != 0) return 0;
    std::vector<double> field(all.size());
    auto next = all.begin();
    for (int r = 0; r < world.size(); ++r) {
      const Box box = blocks.box(r);
      for (std::int64_t y = box[0].begin; y < box[0].end; ++y) {
        for (std::int64_t x = box[1].begin; x < box[1].end; ++x) {
          field[std::size_t(y * kColumns + x)] = *next++;
        }
      }
    }
    const bool same = field == alone();
    std::printf("the plate of %d ranks and that of one are %s\n", world.size(),
                same ? "equal, bit for bit" : "DIFFERENT");
    if (argc > 1 && !draw(argv[1], field, blocks)) {
      std::fprintf(stderr, "heat: cannot write %s\n", argv[1]);
      return 1;
    }
    return same ? 0 : 1;
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "heat: %s\n", error.what());
    return 1;
  }
}
