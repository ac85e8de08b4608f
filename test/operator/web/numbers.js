// For properties over sequences: repeatable numbers.

/** `random(n)` gives whole numbers 0..n-1. */
export function randomOf(seed) {
  let state = seed;
  return (n) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * n);
  };
}

export const pick = (random, values) => values[random(values.length)];
