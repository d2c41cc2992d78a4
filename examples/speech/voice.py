"""Sounds to try a detector of speech with: a synthetic voice, and what is no voice. All FP32[samples] from -1 to 1.

The voice is what makes speech speech, and no recording: pulses of a falling pitch through the resonances of vowels, hisses
between them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Sound = npt.NDArray[np.float32]

# Of each vowel the three resonances: frequency and width in Hz, strength.
VOWELS = {
    "a": ((730, 90, 1.0), (1090, 110, 0.5), (2440, 170, 0.25)),
    "e": ((530, 70, 1.0), (1840, 120, 0.4), (2480, 170, 0.3)),
    "i": ((270, 60, 1.0), (2290, 150, 0.4), (3010, 200, 0.3)),
    "u": ((300, 60, 1.0), (870, 90, 0.4), (2240, 150, 0.1)),
}


def voice(text: str = "sasi seu sasi seu", rate: int = 16000) -> Sound:
    """Say a text of vowels, `s` and spaces, at `rate` samples a second."""
    random = np.random.default_rng(7)
    sounds = [hiss(0.2, 0.001, random, rate)]
    for letter in text:
        if letter == " ":
            sounds.append(hiss(0.12, 0.001, random, rate))
        elif letter == "s":
            sounds.append(hiss(0.06, 0.05, random, rate))
        else:
            sounds.append(vowel(letter, rate))
    return np.concatenate([*sounds, np.zeros(rate, np.float32)])


def vowel(letter: str, rate: int, seconds: float = 0.18) -> Sound:
    """Return a vowel: the harmonics of a voice's pitch, as strong as the vowel's resonances let them be."""
    time = np.arange(int(seconds * rate)) / rate
    pitch = 120 * np.linspace(1.1, 0.9, len(time)) * (1 + 0.03 * np.sin(2 * np.pi * 5 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    wave = np.zeros(len(time))
    for harmonic in range(1, rate // 2 // 132):
        frequency = 120 * harmonic
        gain = sum(strength / (1 + ((frequency - at) / width) ** 2) for at, width, strength in VOWELS[letter])
        wave += gain / harmonic**0.5 * np.sin(harmonic * phase)
    wave *= np.minimum(1, np.minimum(time / 0.03, (seconds - time) / 0.05))
    return (0.3 * wave / np.abs(wave).max()).astype(np.float32)


def hiss(seconds: float, loudness: float, random: np.random.Generator, rate: int) -> Sound:
    """Return noise."""
    return (loudness * random.standard_normal(int(seconds * rate))).astype(np.float32)


def no_voice(rate: int = 16000) -> Sound:
    """Return a second each of silence, a tone and noise."""
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    noise = hiss(1, 0.1, np.random.default_rng(8), rate)
    return np.concatenate([np.zeros(rate), tone, noise]).astype(np.float32)
