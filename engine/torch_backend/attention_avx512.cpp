// Causal attention of float32 rows on one core with AVX-512; engine/torch_backend/attention_avx512.py compiles and calls it.
//
// The query heads of a key head are stacked position by position: stacked row s is head s % group of position s / group.
// STRIP stacked rows go through a stretch of KEYS keys at once: their scores, the exponentials and the product with the
// values stay in registers and in the first cache. Sums and maxima run along, as in every online softmax.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int LANES = 16;
constexpr int STRIP = 6;            // with four vectors of columns: 24 of the 32 registers hold sums
constexpr int COLUMNS = 4 * LANES;  // of a panel: keys that lie side by side for one dimension
constexpr int KEYS = 512;
constexpr long BLOCK = 16 * STRIP;  // stacked rows that pass over a stretch before the next stretch is read

typedef float Lanes __attribute__((vector_size(64)));
typedef float Unaligned __attribute__((vector_size(64), aligned(4)));
typedef int32_t Integers __attribute__((vector_size(64)));

inline Lanes load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void store(float* to, Lanes x) { *reinterpret_cast<Unaligned*>(to) = x; }
inline Lanes fill(float x) { return x - Lanes{}; }

// e^x for x <= 0, to two units in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. Not a number stays so.
inline Lanes exponential(Lanes x) {
  const Lanes lowest = fill(-87.0f);  // below it the result would be no normal number: it is 0
  const float round_to_integer = 12582912.0f;
  const Integers vanishes = lowest > x;
  x = vanishes ? lowest : x;
  const Lanes shifted = x * 1.44269504f + round_to_integer;
  const Lanes n = shifted - round_to_integer;
  const Lanes r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  Lanes sum = fill(1.0f / 720);
  for (const float coefficient : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) sum = sum * r + coefficient;
  const Integers power = reinterpret_cast<Integers>(sum) + (reinterpret_cast<Integers>(shifted) << 23);
  return reinterpret_cast<Lanes>(power & ~vanishes);
}

// to[STRIP][vectors x LANES] = a, packed as [depth][STRIP], times b, a panel [depth][COLUMNS].
template <int vectors>
inline void multiply_panel(const float* a, const float* b, long depth, float* to, long to_stride) {
  Lanes sums[STRIP][vectors] = {};
  for (long d = 0; d < depth; d++) {
    Lanes row[vectors];
    for (int j = 0; j < vectors; j++) row[j] = load(b + d * COLUMNS + j * LANES);
    for (int i = 0; i < STRIP; i++)
      for (int j = 0; j < vectors; j++) sums[i][j] += a[d * STRIP + i] * row[j];
  }
  for (int i = 0; i < STRIP; i++)
    for (int j = 0; j < vectors; j++) store(to + i * to_stride + j * LANES, sums[i][j]);
}

// sums[STRIP][vectors x LANES] = sums times shrink[row] + weights[STRIP][keys] times values[keys].
template <int vectors>
inline void add_values(const float* weights, const float* values, long values_stride, long keys, float* sums,
                       long sums_stride, const float* shrink) {
  Lanes kept[STRIP][vectors];
  for (int i = 0; i < STRIP; i++)
    for (int j = 0; j < vectors; j++) kept[i][j] = load(sums + i * sums_stride + j * LANES) * shrink[i];
  for (long k = 0; k < keys; k++) {
    Lanes row[vectors];
    for (int j = 0; j < vectors; j++) row[j] = load(values + k * values_stride + j * LANES);
    for (int i = 0; i < STRIP; i++)
      for (int j = 0; j < vectors; j++) kept[i][j] += weights[i * KEYS + k] * row[j];
  }
  for (int i = 0; i < STRIP; i++)
    for (int j = 0; j < vectors; j++) store(sums + i * sums_stride + j * LANES, kept[i][j]);
}

// Calls a template by a number of vectors known at run time, 1 to 4.
#define WITH_VECTORS(count, function, ...)              \
  switch (count) {                                      \
    case 1: function<1>(__VA_ARGS__); break;            \
    case 2: function<2>(__VA_ARGS__); break;            \
    case 3: function<3>(__VA_ARGS__); break;            \
    default: function<4>(__VA_ARGS__);                  \
  }

// Scores of a row become weights: e^(score - the largest so far), 0 from `valid` on. Returns what earlier sums shrink by.
float weigh(float* row, long valid, long vectors, float& largest, float& sum) {
  for (long k = std::max(valid, 0L); k < vectors * LANES; k++) row[k] = -INFINITY;
  Lanes most = load(row);
  for (long n = 1; n < vectors; n++) {
    const Lanes next = load(row + n * LANES);
    most = next > most ? next : most;
  }
  const float before = largest;
  for (int lane = 0; lane < LANES; lane++) largest = std::max(largest, most[lane]);
  Lanes added = {};
  for (long n = 0; n < vectors; n++) {
    const Lanes weight = exponential(load(row + n * LANES) - largest);
    store(row + n * LANES, weight);
    added += weight;
  }
  const float shrink = before == largest ? 1.0f : std::exp(before - largest);
  sum *= shrink;
  for (int lane = 0; lane < LANES; lane++) sum += added[lane];
  return shrink;
}

// keys[positions][stride] -> panels [dimension][COLUMNS] of COLUMNS keys each; the last one is filled up with zeros.
void pack_keys(const float* keys, long stride, long positions, long dim, float* panels) {
  for (long first = 0; first < positions; first += COLUMNS, panels += COLUMNS * dim)
    for (long column = 0; column < COLUMNS; column++)
      for (long d = 0; d < dim; d++)
        panels[d * COLUMNS + column] = first + column < positions ? keys[(first + column) * stride + d] : 0.0f;
}

}  // namespace

extern "C" {

// Floats that `attend` needs to work in.
long attend_workspace(long positions, long dim) {
  return ((positions + COLUMNS - 1) / COLUMNS * COLUMNS + 2 * BLOCK) * dim;
}

// Replaces queries[rows][heads][dim] by what they attended to. Keys and values: [positions][kv_heads][dim], a position
// `stride` floats after the one before; row r sees the first positions - rows + r + 1. dim: a multiple of LANES.
void attend(float* queries, const float* keys, const float* values, long rows, long positions, long heads,
            long kv_heads, long dim, long stride, float scale, float* workspace) {
  const long group = heads / kv_heads, context = positions - rows, stacked = rows * group;
  float* const sums = workspace;                // [BLOCK][dim]
  float* const packed = sums + BLOCK * dim;     // strips of queries, [dim][STRIP] each
  float* const panels = packed + BLOCK * dim;   // all keys of one head
  alignas(64) float weights[STRIP * KEYS];
  float largest[BLOCK], sum[BLOCK], shrink[STRIP];
  for (long head = 0; head < kv_heads; head++) {
    pack_keys(keys + head * dim, stride, positions, dim, panels);
    const auto query = [&](long s) { return queries + (s / group * heads + head * group + s % group) * dim; };
    for (long first = 0; first < stacked; first += BLOCK) {
      const long count = std::min(BLOCK, stacked - first), strips = (count + STRIP - 1) / STRIP;
      std::memset(sums, 0, sizeof(float) * strips * STRIP * dim);
      for (long i = 0; i < strips * STRIP; i++) {
        const float* from = query(std::min(first + i, stacked - 1));  // a last strip is filled up with its last row
        for (long d = 0; d < dim; d++) packed[(i / STRIP * dim + d) * STRIP + i % STRIP] = from[d] * scale;
        largest[i] = -INFINITY;
        sum[i] = 0.0f;
      }
      const auto seen = [&](long i) { return context + std::min(first + i, stacked - 1) / group + 1; };
      for (long begin = 0; begin < seen(count - 1); begin += KEYS) {
        for (long row = 0; row < strips * STRIP; row += STRIP) {
          const long seen_here = std::min(seen(row + STRIP - 1) - begin, long{KEYS});
          if (seen_here <= 0) continue;
          const long vectors = (seen_here + LANES - 1) / LANES;
          for (long n = 0; n < vectors; n += 4)
            WITH_VECTORS(vectors - n, multiply_panel, packed + row * dim, panels + (begin + n * LANES) * dim, dim,
                         weights + n * LANES, KEYS)
          for (int i = 0; i < STRIP; i++)
            shrink[i] = weigh(weights + i * KEYS, seen(row + i) - begin, vectors, largest[row + i], sum[row + i]);
          for (long d = 0; d < dim; d += COLUMNS)
            WITH_VECTORS((dim - d) / LANES, add_values, weights, values + begin * stride + head * dim + d, stride,
                         seen_here, sums + row * dim + d, dim, shrink)
        }
      }
      for (long i = 0; i < count; i++)
        for (long d = 0; d < dim; d++) query(first + i)[d] = sums[i * dim + d] / sum[i];
    }
  }
}

}  // extern "C"
